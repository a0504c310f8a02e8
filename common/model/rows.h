// The rows of a parameter that lie on this rank. A shard begins and ends where it likes, so it may
// have a part of a row; a tensor rank may have some columns of every row.
#pragma once

#include <cstdint>
#include <vector>

#include "common/model/layout.h"
#include "kernels/tensor.h"

namespace ladder {

/// Neighboring rows of a parameter, or a part of one row.
struct RowsHere {
  int64_t first;  ///< row of the whole parameter
  Tensor data;    ///< (R,N)

  /// Their elements of what has one for each row. per_row (rows,...) -> (R,...)
  Tensor of(Tensor per_row) const { return per_row.slice(first, data.dim(0)); }
};

/// How many rows the parameter has: units of a layer, without padding. A vector is one row.
inline int64_t rows_of(const ParamSpec& spec) { return spec.is_matrix() ? spec.rows : 1; }

/// What lies here of the rows of `spec`, without padding.
/// @param own what this rank holds of the model that `spec` is of
/// @param flat_buffer (own.size())
std::vector<RowsHere> rows_here(const ParamLayout& own, Tensor flat_buffer, const ParamSpec& spec);

}  // namespace ladder
