// The backends of a build that has the CUDA kernels for the CPU.
#include <array>

#include "common/run/backend.h"
#include "kernels/cuda/backend.h"

namespace ladder {

std::span<const Backend> backends() {
  static constexpr std::array kBackends = {
      Backend{"ref", ref_kernels}, Backend{"cpu", cpu_kernels},
      Backend{"cuda-on-cpu", cuda_on_cpu::kernels, [] { return cuda_on_cpu::open_device(0); }}};
  return kBackends;
}

}  // namespace ladder
