// The linear layer: three orientations of one matrix product, and the gradient of the bias. The
// layers of experts: the same products over the rows of each expert.
#include <algorithm>
#include <vector>

#include "kernels/cpu/columns.h"
#include "kernels/cpu/dispatch.h"
#include "kernels/cpu/gemm/gemm.h"
#include "kernels/cpu/table.h"
#include "kernels/documents.h"
#include "kernels/experts.h"
#include "kernels/shapes.h"

namespace ladder::cpu {
namespace {

/// A matrix of `stride` columns as a factor. Sums run along its rows, or along its columns.
Factor along_rows(const Tensor& x, int64_t stride) {
  return {.ptr = x.host(), .dtype = x.dtype, .stride_i = stride, .stride_k = 1};
}
Factor along_columns(const Tensor& x, int64_t stride) {
  return {.ptr = x.host(), .dtype = x.dtype, .stride_i = 1, .stride_k = stride};
}

/// The number by which a product of two tensors' codes must be multiplied.
float unscale(const Tensor& a, const Tensor& b) {
  return 1.0f / ((a.fp8 ? a.fp8->scale : 1.0f) * (b.fp8 ? b.fp8->scale : 1.0f));
}

/// out (rows,N) = inp (rows,K) w^T
Product forward(const Tensor& out, const Tensor& inp, const Tensor& w, int leaves) {
  const int64_t N = w.dim(0), K = w.dim(1);
  return {.M = out.rows(),
          .N = N,
          .K = K,
          .leaves = leaves,
          .a = along_rows(inp, K),
          .b = along_rows(w, K),
          .c = out.host(),
          .c_dtype = out.dtype,
          .stride_c = N,
          .factor = unscale(inp, w)};
}
/// dinp (rows,K) = dout (rows,N) w
Product backward_input(const Tensor& dinp, const Tensor& dout, const Tensor& w, int leaves) {
  const int64_t N = w.dim(0), K = w.dim(1);
  return {.M = dinp.rows(),
          .N = K,
          .K = N,
          .leaves = leaves,
          .a = along_rows(dout, N),
          .b = along_columns(w, K),
          .c = dinp.host(),
          .c_dtype = dinp.dtype,
          .stride_c = K,
          .factor = unscale(dout, w)};
}
/// dw (N,K) (+)= dout (rows,N)^T inp (rows,K). The caller chooses the order of the rows.
Product backward_weight(const Tensor& dw, const Tensor& dout, const Tensor& inp, Into into) {
  const int64_t N = dw.dim(0), K = dw.dim(1);
  return {.M = N,
          .N = K,
          .K = dout.rows(),
          .a = along_columns(dout, N),
          .b = along_columns(inp, K),
          .c = dw.host(),
          .stride_c = K,
          .factor = unscale(dout, inp),
          .into = into,
          .for_later = true};
}

/// Expert e's matrix of x (E,N,K).
Tensor matrix_of(const Tensor& x, int64_t e) { return x.slice(e, 1).view({x.dim(1), x.dim(2)}); }
/// Expert e's rows of x (M,..).
Tensor slice_of(const Tensor& x, const ExpertRows& rows, int64_t e) {
  const Range range = rows_of(rows, e);
  return x.slice(range.begin, range.size());
}

/// Computes product_of(e) for all experts that have rows, on all threads.
template <class F>
void multiply_groups(const Ctx& ctx, const ExpertRows& rows, const Extents& s,
                     const F& product_of) {
  check_offsets(rows, s.M);
  std::vector<Product> products;
  for (int64_t e = 0; e < s.E; ++e)
    if (rows_of(rows, e).size() > 0) products.push_back(product_of(e));
  gemm(ctx, products);
}

}  // namespace

void matmul_forward(const Ctx& ctx, Tensor out, Tensor inp, Tensor w, Tensor bias, int leaves) {
  check_shapes(Op::matmul_forward, out, inp, w, bias, leaves);
  Product product = forward(out, inp, w, leaves);
  product.bias = bias.host();
  gemm(ctx, product);
}

void matmul_backward_input(const Ctx& ctx, Tensor dinp, Tensor dout, Tensor w, int leaves) {
  check_shapes(Op::matmul_backward_input, dinp, dout, w, leaves);
  gemm(ctx, backward_input(dinp, dout, w, leaves));
}

void matmul_backward_weight(const Ctx& ctx, Tensor dw, Tensor dout, Tensor inp, Into into) {
  const Extents s = check_shapes(Op::matmul_backward_weight, dw, dout, inp);
  Product product = backward_weight(dw, dout, inp, into);
  const Sequences sequences = sequences_of(ctx, s.B, s.T);
  std::vector<SparseLeaf> documents;
  if (sequences.documents) {
    for_matrix_leaves(sequences, ctx.token_chunks, [&](int64_t index, const Fold& k) {
      if (k.early.size() + k.late.size() > 0) documents.push_back({.index = index, .k = k});
    });
    product.present = documents;
    if (documents.empty()) product.K = 0;  // one empty leaf
  } else {
    const int64_t n = matrix_leaves(ctx.token_chunks, s.T);
    if (matrix_folds(n, ctx.token_chunks)) product.token_leaves = n;
    product.leaves = std::max<int64_t>(1, s.B) * n;  // without sequences: one empty leaf
  }
  gemm(ctx, product);
}

void grouped_matmul_forward(const Ctx& ctx, Tensor out, Tensor inp, Tensor w,
                            const ExpertRows& rows, int leaves) {
  const Extents s = check_shapes(Op::grouped_matmul_forward, out, inp, w, rows, leaves);
  multiply_groups(ctx, rows, s, [&](int64_t e) {
    return forward(slice_of(out, rows, e), slice_of(inp, rows, e), matrix_of(w, e), leaves);
  });
}

void grouped_matmul_backward_input(const Ctx& ctx, Tensor dinp, Tensor dout, Tensor w,
                                   const ExpertRows& rows, int leaves) {
  const Extents s = check_shapes(Op::grouped_matmul_backward_input, dinp, dout, w, rows, leaves);
  multiply_groups(ctx, rows, s, [&](int64_t e) {
    return backward_input(slice_of(dinp, rows, e), slice_of(dout, rows, e), matrix_of(w, e),
                          leaves);
  });
}

void grouped_matmul_backward_weight(const Ctx& ctx, Tensor dw, Tensor dout, Tensor inp,
                                    const ExpertRows& rows, Into into) {
  const Extents s = check_shapes(Op::grouped_matmul_backward_weight, dw, dout, inp, rows);
  check_offsets(rows, s.M);
  std::vector<std::vector<SparseLeaf>> leaves(static_cast<size_t>(s.E));
  std::vector<Product> products;
  for (int64_t e = 0; e < s.E; ++e) {
    std::vector<SparseLeaf>& present = leaves[static_cast<size_t>(e)];
    const int64_t first = rows_of(rows, e).begin;
    const auto counted = [=](Range range) { return Range{range.begin - first, range.end - first}; };
    for_leaves(rows, e, ctx.token_chunks, [&](int64_t index, const Fold& k) {
      present.push_back({.index = index, .k = {counted(k.early), counted(k.late)}});
    });
    products.push_back(
        backward_weight(matrix_of(dw, e), slice_of(dout, rows, e), slice_of(inp, rows, e), into));
    products.back().present = present;  // without rows: one empty leaf
  }
  gemm(ctx, products);
}

void bias_backward(const Ctx& ctx, Tensor db, Tensor dout, Into into) {
  const Extents s = check_shapes(Op::bias_backward, db, dout);
  float* to = db.data<float>();
  dispatch(dout, [&]<class Real>(Real) {
    const Real* from = dout.data<Real>();
    parallel_for(ctx, s.N, kColumns, s.B * s.T, [&](Range range) {
      sum_columns<1>(
          range, {ctx.token_chunks, sequences_of(ctx, s.B, s.T)},
          [=](ColumnSums<1>& sum, int64_t row, int64_t n, auto columns) {
            const Real* x = from + row * s.N + n;
            columns.each([&](int64_t part, int64_t i, auto io) {
              ask_for_later_row(x + i, s.N);
              sum.at(0, part) = hn::Add(sum.at(0, part), io.load(x + i));
            });
          },
          [=](ColumnSums<1>& sums, int64_t n, auto columns) {
            put_columns(to + n, sums, 0, columns, into);
          });
    });
  });
}

}  // namespace ladder::cpu
