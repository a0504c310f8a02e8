#include "common/model/rows.h"

#include <algorithm>

#include "common/comm/chunks.h"

namespace ladder {

std::vector<RowsHere> rows_here(const ParamLayout& own, Tensor flat_buffer, const ParamSpec& spec) {
  const ParamSpec* here = own.find(spec.name);
  if (!here) return {};
  const Tensor data = flat(own.tensor(flat_buffer, *here));
  const int64_t N = spec.is_matrix() ? spec.shape.dims[1] : spec.rows;
  if (here->is_whole() && here->is_matrix() && here->shape.dims[1] < N)
    return {{0, data.view(here->shape)}};  // some columns of all rows
  std::vector<RowsHere> all;
  here->for_runs([&](int64_t begin, int64_t there, int64_t n) {
    for (int64_t at = there, end = there + n; at < end;) {
      const int64_t row = at / N, left = (row + 1) * N - at;
      const bool whole = left == N && end - at >= N;
      const int64_t R = whole ? (end - at) / N : 1, width = whole ? N : std::min(left, end - at);
      all.push_back({row, data.slice(begin + at - there, R * width).view({R, width})});
      at += R * width;
    }
  });
  return all;
}

}  // namespace ladder
