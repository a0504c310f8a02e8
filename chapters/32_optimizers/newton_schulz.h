// Newton-Schulz: all singular values of a matrix go to about 1, and its singular vectors stay.
//
//   X = M / max(|M|, 1e-7)                    the Frobenius norm: every singular value is at most 1
//   five times:  A = X X^T,  X = a X + (b A + c A A) X
//
// A step takes each singular value s to p(s) = a s + b s^3 + c s^5. With a = 3.4445, b = -4.7750
// and c = 2.0315 a small s grows 3.4445-fold a step, and one near 1 goes back and forth. After five
// steps an s above 1.6e-3 of the norm is between 0.68 and 1.20. A smaller one has grown 485-fold at
// most, and stays small. Sources: Keller Jordan, "Muon" (2024); torch.optim.Muon.
//
// Of a matrix with more rows than columns, A is the smaller X^T X, and X is multiplied from the
// right. That is what the transposed matrix would give, without a transposed copy. Both forms are
// products that a linear layer has. A is symmetric, to the bit: elements (i, j) and (j, i) are the
// same products, added in the same order. So A A^T may stand for A A.
//
// In BF16, as torch.optim.Muon always does it, factors and results of products are BF16, and so are
// X and b A + c A A; sums are FP32. A rounding of X points in all directions. Those that M does not
// have grow like small singular values, 485-fold: the lower the rank of M, the worse.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "kernels/arena.h"
#include "kernels/kernels.h"
#include "kernels/limbs.h"

namespace ladder {

class NewtonSchulz {
 public:
  static constexpr int kSteps = 5;
  static constexpr float kA = 3.4445f, kB = -4.7750f, kC = 2.0315f;
  static constexpr float kLeastNorm = 1e-7f;

  /// @param elements of the largest matrix
  /// @param side     the largest min(R, N) of a matrix (R,N)
  /// @param dtype    of products: F32 or BF16
  NewtonSchulz(Arena& arena, int64_t elements, int64_t side, Dtype dtype = Dtype::F32)
      : is_narrow_(dtype != Dtype::F32),
        product_(alloc(arena, "ns.product", elements)),
        gram_(alloc(arena, "ns.gram", side * side)),
        square_(alloc(arena, "ns.square", side * side)),
        limbs_(arena.shared(Mem::Workspace, "ns.limbs", Dtype::I64, {1, kLimbs})) {
    if (is_narrow_) narrow_ = arena.alloc(Mem::Workspace, "ns.x", Dtype::BF16, {elements});
  }

  /// Bytes of Workspace.
  static int64_t bytes(int64_t elements, int64_t side, Dtype dtype = Dtype::F32) {
    const int64_t narrow = dtype == Dtype::F32 ? 0 : 2 * (2 * elements + 2 * side * side);
    return 4 * (elements + 2 * side * side) + narrow + 8 * kLimbs;
  }

  /// Floating-point operations of a matrix (R,N), with m = min(R, N) and n = max(R, N): a step has
  /// 2 m^2 n for A, 2 m^3 for A A, and 2 m^2 n for the product with X.
  static int64_t flops(int64_t R, int64_t N) {
    const int64_t m = std::min(R, N), n = std::max(R, N);
    return kSteps * (4 * m * m * n + 2 * m * m * m);
  }
  /// Those of all calls so far.
  int64_t counted() const { return counted_; }

  /// In place. inp (R,N) F32
  void orthogonalize(const Ctx& ctx, Tensor inp) {
    const Kernels& k = *ctx.kernels;
    const int64_t R = inp.dim(0), N = inp.dim(1), m = std::min(R, N);
    const bool wide = R <= N;
    const Both x{inp, is_narrow_ ? narrow_.first(R * N).view({R, N}) : inp};
    const Both y = product_.first(R, N), a = gram_.first(m, m), aa = square_.first(m, m);
    k.scale(ctx, x.sums, 1 / std::max(norm(ctx, x.sums), kLeastNorm));
    round(ctx, x);
    for (int step = 0; step < kSteps; ++step) {
      if (wide) {
        k.matmul_forward(ctx, a.products, x.products, x.products, {}, kLeaves);  // X X^T
        widen(ctx, a);
      } else {  // X^T X: the sum is over the rows of X
        const Tensor rows = x.products.view({1, R, N});
        k.matmul_backward_weight(ctx, a.sums, rows, rows, Into::Write);
        round(ctx, a);
      }
      k.matmul_forward(ctx, aa.products, a.products, a.products, {}, kLeaves);
      widen(ctx, aa);
      k.scale(ctx, a.sums, kB);
      k.scale(ctx, aa.sums, kC);
      k.add(ctx, a.sums, a.sums, aa.sums);
      round(ctx, a);
      if (wide)
        k.matmul_backward_input(ctx, y.products, a.products, x.products, kLeaves);
      else
        k.matmul_forward(ctx, y.products, x.products, a.products, {}, kLeaves);
      widen(ctx, y);  // (b A + c A A) X, or X (b A + c A A)
      k.scale(ctx, x.sums, kA);
      k.add(ctx, x.sums, x.sums, y.sums);
      round(ctx, x);
      counted_ += 2 * 2 * m * R * N + 2 * m * m * m;
    }
  }

 private:
  /// A matrix in FP32, which sums write, and in the dtype of products: one memory if that is FP32.
  struct Both {
    Tensor sums, products;

    Both first(int64_t R, int64_t N) const {
      const Shape shape{R, N};
      return {sums.first(R * N).view(shape), products.first(R * N).view(shape)};
    }
  };

  Both alloc(Arena& arena, const char* name, int64_t n) const {
    const Tensor sums = arena.alloc(Mem::Workspace, name, Dtype::F32, {n});
    return {sums, is_narrow_ ? arena.alloc(Mem::Workspace, name, Dtype::BF16, {n}) : sums};
  }
  /// In BF16: rounds what a sum has made.
  void round(const Ctx& ctx, const Both& x) const {
    if (!is_narrow_) return;
    ctx.kernels->cast(ctx, x.products, x.sums);
    widen(ctx, x);
  }
  /// In BF16: copies what a product has made to where sums read it.
  void widen(const Ctx& ctx, const Both& x) const {
    if (is_narrow_) ctx.kernels->cast(ctx, x.sums, x.products);
  }

  /// Its bits do not depend on threads: see Kernels::squared_norm.
  float norm(const Ctx& ctx, Tensor x) const {
    std::fill_n(limbs_.data<int64_t>(), kLimbs, 0);
    ctx.kernels->squared_norm(ctx, limbs_, x.view({1, x.size()}));
    ctx.synchronize();
    carry_limbs(limbs_.data<int64_t>());
    return static_cast<float>(std::sqrt(limbs_value(limbs_.data<int64_t>())));
  }

  bool is_narrow_;
  Both product_, gram_, square_;
  Tensor limbs_, narrow_;  ///< narrow_: X of products
  int64_t counted_ = 0;
};

}  // namespace ladder
