// The backends of a build without the cpu kernels: LADDER_CPU_TABLE=OFF.
#include <array>

#include "common/run/backend.h"
#include "kernels/cuda/backend.h"

namespace ladder {

std::span<const Backend> backends() {
  static constexpr std::array kBackends = {
      Backend{"ref", ref_kernels},
      Backend{"cuda-on-cpu", cuda_on_cpu::kernels, [] { return cuda_on_cpu::open_device(0); }}};
  return kBackends;
}

}  // namespace ladder
