// An all-to-all whose parts have different sizes, since tokens decide how many rows go where. MPI
// calls it all-to-all-v; in PyTorch it is all_to_all_single with input and output splits.
#pragma once

#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

#include "common/comm/comm.h"
#include "common/comm/elements.h"

namespace ladder {

/// Tells rank i that `out[i]` rows will go to it, and hears the same from each rank.
/// @return size + 1 numbers: where the rows of rank i begin among all that will arrive, and last
/// how many will arrive in all
inline std::vector<int32_t> exchange_counts(Comm& group, std::vector<int32_t> out) {
  std::vector<int32_t> in(out.size()), begin(out.size() + 1);
  const auto tensor = [](std::vector<int32_t>& x) {
    return Tensor{.ptr = x.data(), .dtype = Dtype::I32, .shape = {std::ssize(x)}};
  };
  group.all_to_all(tensor(in), tensor(out));
  std::partial_sum(in.begin(), in.end(), begin.begin() + 1);
  return begin;
}

/// An all-to-all of unequal parts: rows [begin[i], begin[i + 1]) of `leaving` go to rank i, and
/// such rows of `arriving` come from rank i. Each of the two tensors has its own `begin`. Rows
/// after the last begin are not touched. arriving, leaving (rows,width)
inline void all_to_all_rows(Comm& group, Tensor arriving, std::span<const int32_t> arriving_begin,
                            Tensor leaving, std::span<const int32_t> leaving_begin) {
  const auto part = [](Tensor x, std::span<const int32_t> begin, int rank) {
    const auto i = static_cast<size_t>(rank);
    return x.slice(begin[i], begin[i + 1] - begin[i]);
  };
  const int me = group.rank(), size = group.size();
  // Ranks check that they all make the same call. Numbers of rows may differ, so the shape is 0.
  // `result` is what --fault may spoil.
  const Call call{.operation = Operation::AllToAll,
                  .payload = {.dtype = leaving.dtype, .shape = {0}},
                  .result = flat(arriving).first(arriving_begin.back() * arriving.dim(1)),
                  .variant = "rows"};
  group.collective(call, [&] {
    std::vector<Pending> all;
    for (int step = 1; step < size; ++step) {
      const int to = (me + step) % size, from = (me + size - step) % size;
      all.push_back(group.iexchange(part(leaving, leaving_begin, to), to,
                                    part(arriving, arriving_begin, from), from));
    }
    copy_elements(part(arriving, arriving_begin, me), part(leaving, leaving_begin, me),
                  group.device());
    for (Pending& pending : all) pending.wait();
  });
}

}  // namespace ladder
