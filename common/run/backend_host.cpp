// The backends of a build without CUDA kernels.
#include <array>

#include "common/run/backend.h"

namespace ladder {

std::span<const Backend> backends() {
  static constexpr std::array kBackends = {Backend{"ref", ref_kernels},
                                           Backend{"cpu", cpu_kernels}};
  return kBackends;
}

}  // namespace ladder
