// The backends of a build without the cpu kernels: LADDER_CPU_TABLE=OFF.
#include <array>

#include "common/run/backend.h"

namespace ladder {

std::span<const Backend> backends() {
  static constexpr std::array kBackends = {Backend{"ref", ref_kernels}};
  return kBackends;
}

}  // namespace ladder
