// The product where few rows of C are wanted, as when a text grows by a token: B, the weights, is
// read once and in place. The sums are those of tile.h: a chain for each leaf, then the tree.
#pragma once

#include "kernels/cpu/gemm/finish.h"
#include "kernels/cpu/rows_in_place.h"

namespace ladder {

/// Whether few_rows() can compute so many rows of the product.
inline bool takes_few_rows(const Product& p, int64_t rows) {
  return rows <= kMostFewRows && p.a.dtype == Dtype::F32 && p.b.dtype == Dtype::F32 &&
         p.a.stride_k == 1 && p.b.stride_k == 1 && p.token_leaves == 0 && p.present.empty();
}

/// The sums of one column of C for each lane.
template <size_t M>
struct RowSums {
  Vecs<M> of;

  RowSums() = default;  // TreeSum has many that it never uses
  explicit RowSums(double begin) { of.fill(broadcast(static_cast<float>(begin))); }
  friend HWY_INLINE RowSums operator+(RowSums a, const RowSums& b) {
    for (size_t m = 0; m < M; ++m) a.of[m] = hn::Add(a.of[m], b.of[m]);
    return a;
  }
};

/// Computes the rectangle rows x cols of C.
inline void few_rows(const Product& p, Range rows, Range cols) {
  const float* a = static_cast<const float*>(p.a.ptr) + rows.begin * p.a.stride_i;
  with_few_rows(rows.size(), [&]<size_t M>(std::integral_constant<size_t, M>) {
    for_lane_rows(static_cast<const float*>(p.b.ptr), p.b.stride_i, cols,
                  [&](int64_t n, int64_t count, const auto& b) {
                    TreeSum<RowSums<M>> sum;
                    for (int64_t i = 0; i < p.leaves; ++i) {
                      RowSums<M> chain(kNothing);
                      add_products(chain.of, a, p.a.stride_i, b, leaf(i, p.leaves, p.K));
                      sum.push(chain);
                    }
                    const RowSums<M> total = sum.total();
                    const Corner to{
                        .p = p, .m = rows.begin, .n = n, .rows = rows.size(), .cols = count};
                    with_finish(to, [&](const auto& finish) {
                      for (size_t m = 0; m < M; ++m) {
                        if (count == kLanes)
                          finish(total.of[m], static_cast<int64_t>(m), 0, Whole{});
                        else
                          finish(total.of[m], static_cast<int64_t>(m), 0, Part(count));
                      }
                    });
                  });
  });
}

}  // namespace ladder
