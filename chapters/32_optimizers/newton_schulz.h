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
// right. That is what the transposed matrix would give, and no copy is turned. Both forms are
// products that a linear layer has. A is symmetric, to the bit: both of two mirrored elements are
// the same products, added in the same order. So A A^T may stand for A A.
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
  NewtonSchulz(Arena& arena, int64_t elements, int64_t side)
      : product_(arena.alloc(Mem::Workspace, "ns.product", Dtype::F32, {elements})),
        gram_(arena.alloc(Mem::Workspace, "ns.gram", Dtype::F32, {side * side})),
        square_(arena.alloc(Mem::Workspace, "ns.square", Dtype::F32, {side * side})),
        limbs_(arena.shared(Mem::Workspace, "ns.limbs", Dtype::I64, {1, kLimbs})) {}

  /// Bytes of Workspace.
  static int64_t bytes(int64_t elements, int64_t side) {
    return 4 * (elements + 2 * side * side) + 8 * kLimbs;
  }

  /// Floating-point operations of a matrix (R,N), with m = min(R, N) and n = max(R, N): a step has
  /// 2 m^2 n for A, 2 m^3 for A A, and 2 m^2 n for the product with X.
  static int64_t flops(int64_t R, int64_t N) {
    const int64_t m = std::min(R, N), n = std::max(R, N);
    return kSteps * (4 * m * m * n + 2 * m * m * m);
  }
  /// Those of all calls so far.
  int64_t counted() const { return counted_; }

  /// In place. x (R,N) F32
  void orthogonalize(const Ctx& ctx, Tensor x) {
    const Kernels& k = *ctx.kernels;
    const int64_t R = x.dim(0), N = x.dim(1), m = std::min(R, N);
    const bool wide = R <= N;
    const Tensor y = product_.first(R * N).view({R, N});
    const Tensor a = gram_.first(m * m).view({m, m}), aa = square_.first(m * m).view({m, m});
    k.scale(ctx, x, 1 / std::max(norm(ctx, x), kLeastNorm));
    for (int step = 0; step < kSteps; ++step) {
      if (wide)
        k.matmul_forward(ctx, a, x, x, {}, kLeaves);  // X X^T
      else                                            // X^T X: the sum is over the rows of X
        k.matmul_backward_weight(ctx, a, x.view({1, R, N}), x.view({1, R, N}), Into::Write);
      k.matmul_forward(ctx, aa, a, a, {}, kLeaves);
      k.scale(ctx, a, kB);
      k.scale(ctx, aa, kC);
      k.add(ctx, a, a, aa);
      if (wide)
        k.matmul_backward_input(ctx, y, a, x, kLeaves);  // (b A + c A A) X
      else
        k.matmul_forward(ctx, y, x, a, {}, kLeaves);  // X (b A + c A A)
      k.scale(ctx, x, kA);
      k.add(ctx, x, x, y);
      counted_ += 2 * 2 * m * R * N + 2 * m * m * m;
    }
  }

 private:
  /// Its bits do not depend on threads: see Kernels::squared_norm.
  float norm(const Ctx& ctx, Tensor x) const {
    std::fill_n(limbs_.data<int64_t>(), kLimbs, 0);
    ctx.kernels->squared_norm(ctx, limbs_, x.view({1, x.size()}));
    ctx.synchronize();
    carry_limbs(limbs_.data<int64_t>());
    return static_cast<float>(std::sqrt(limbs_value(limbs_.data<int64_t>())));
  }

  Tensor product_, gram_, square_, limbs_;
  int64_t counted_ = 0;
};

}  // namespace ladder
