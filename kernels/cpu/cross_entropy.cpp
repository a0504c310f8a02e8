// Softmax cross-entropy and its gradient, one token's row of logits at a time. As one operation, or
// in three parts between which tensor-parallel ranks exchange.
#include "kernels/cpu/dispatch.h"
#include "kernels/cpu/lanes.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/table.h"
#include "kernels/documents.h"
#include "kernels/math.h"
#include "kernels/shapes.h"

namespace ladder::cpu {
namespace {

/// sum_v exp(x_v - m) over the first `vocab` of V columns, in `leaves` leaves of V.
template <class Real>
float sum_exp(const Real* x, int64_t V, int64_t vocab, int leaves, float m) {
  return tree_sum<float>(leaves, [&](int64_t i) {
    const Range columns = leaf(i, leaves, V);
    const int64_t count = std::max<int64_t>(0, std::min(columns.end, vocab) - columns.begin);
    return lane_sum(count, [&](int64_t v, auto io) {
      return io.only(exp(hn::Sub(io.load(x + columns.begin + v), broadcast(m))));
    });
  });
}

/// What the loss and the gradient of a row need beside its logits.
struct Statistics {
  float max, sum, x_target;

  float loss() const { return math::log(sum) + max - x_target; }
};

/// The gradient of one token's logits. It computes the exponentials anew: dx may have 16 bits, and
/// would round them if it kept them. dx, x (V)
template <class Real>
void gradient(Real* dx, const Real* x, int32_t target, int64_t V, int64_t vocab,
              const Statistics& found, float scale) {
  const Vec inverse = broadcast(1.0f / found.sum);
  const auto probability = [&](Vec logit) {
    return hn::Mul(exp(hn::Sub(logit, broadcast(found.max))), inverse);
  };
  const bool here = is_here(target);
  const Vec p_target = probability(broadcast(here ? value_of(x[target]) : 0));  // dx may be x
  for_vectors(0, vocab, [&](int64_t v, auto io) {
    io.store(hn::Mul(probability(io.load(x + v)), broadcast(scale)), dx + v);
  });
  if (here) Part(1).store(hn::Mul(hn::Sub(p_target, broadcast(1)), broadcast(scale)), dx + target);
  std::fill(dx + vocab, dx + V, Real{});
}

/// The operands of a loss.
struct Loss {
  Tensor losses, dlogits, logits, targets;
  int64_t vocab;
  float scale;

  /// Writes the losses of all sequences and the gradients of their logits. Calls
  /// statistics(x, row, target) for the rows that are not ignored.
  template <class Real, class F>
  void all_rows(const Ctx& ctx, const F& statistics) const {
    const int64_t rows = logits.rows(), V = logits.dim(-1);
    const Real* x0 = logits.data<Real>();
    Real* dx0 = dlogits ? dlogits.data<Real>() : nullptr;
    const int32_t* target = targets.data<int32_t>();
    const std::span<float> token_loss = shared_scratch<float>(ctx, rows);
    parallel_for(ctx, rows, 1, 4 * V, [&](Range range) {
      for (int64_t row = range.begin; row < range.end; ++row) {
        const Real* x = x0 + row * V;
        Real* dx = dx0 ? dx0 + row * V : nullptr;
        float& loss = token_loss[static_cast<size_t>(row)];
        if (target[row] == kIgnore) {
          loss = float{kNothing};
          if (dx) std::fill(dx, dx + V, Real{});
        } else {
          const Statistics found = statistics(x, row, target[row]);
          loss = found.loss();
          if (dx) gradient(dx, x, target[row], V, vocab, found, scale);
        }
      }
    });
    float* sums = losses.data<float>();
    const Sequences sequences = all_sequences_of(ctx, logits.dim(0), logits.dim(1));
    for (int64_t b = 0; b < sequences.count; ++b) {
      const Range own = sequences[b];
      sums[b] = vector_sum<float>(ctx.token_chunks, own.size(), [&](int64_t t) {
        return token_loss[static_cast<size_t>(own.begin + t)];
      });
    }
  }
};

}  // namespace

void cross_entropy(const Ctx& ctx, Tensor losses, Tensor dlogits, Tensor logits, Tensor targets,
                   int64_t vocab, float scale) {
  const int64_t V = check_shapes(Op::cross_entropy, ctx, losses, dlogits, logits, targets, vocab).V;
  const Loss loss{losses, dlogits, logits, targets, vocab, scale};
  check_targets(targets, vocab, /*elsewhere=*/false);
  dispatch(logits, [&]<class Real>(Real) {
    loss.all_rows<Real>(ctx, [&](const Real* x, int64_t, int32_t target) {
      const float max = lane_max(x, vocab);
      return Statistics{
          .max = max, .sum = sum_exp(x, V, vocab, kLeaves, max), .x_target = value_of(x[target])};
    });
  });
}

void softmax_max(const Ctx& ctx, Tensor max, Tensor logits, int64_t vocab) {
  const Extents s = check_shapes(Op::softmax_max, max, logits, vocab);
  float* to = max.data<float>();
  dispatch(logits, [&]<class Real>(Real) {
    const Real* x = logits.data<Real>();
    parallel_for(ctx, s.B * s.T, 1, s.V, [&](Range range) {
      for (int64_t row = range.begin; row < range.end; ++row)
        to[row] = lane_max(x + row * s.V, vocab);
    });
  });
}

void softmax_sum(const Ctx& ctx, Tensor sum, Tensor target, Tensor logits, Tensor max,
                 Tensor targets, int64_t vocab) {
  const Extents s = check_shapes(Op::softmax_sum, sum, target, logits, max, targets, vocab);
  check_targets(targets, vocab, /*elsewhere=*/true);
  const int32_t* column = targets.data<int32_t>();
  const float* m = max.data<float>();
  float *sums = sum.data<float>(), *x_target = target.data<float>();
  dispatch(logits, [&]<class Real>(Real) {
    const Real* x0 = logits.data<Real>();
    parallel_for(ctx, s.B * s.T, 1, 2 * s.V, [&](Range range) {
      for (int64_t row = range.begin; row < range.end; ++row) {
        const Real* x = x0 + row * s.V;
        sums[row] = sum_exp(x, s.V, vocab, ctx.leaves, m[row]);
        x_target[row] = is_here(column[row]) ? value_of(x[column[row]]) : float{kNothing};
      }
    });
  });
}

void softmax_loss(const Ctx& ctx, Tensor losses, Tensor dlogits, Tensor logits, Tensor max,
                  Tensor sum, Tensor target, Tensor targets, int64_t vocab, float scale) {
  check_shapes(Op::softmax_loss, ctx, losses, dlogits, logits, max, sum, target, targets, vocab);
  const Loss loss{losses, dlogits, logits, targets, vocab, scale};
  check_targets(targets, vocab, /*elsewhere=*/true);
  const float *m = max.data<float>(), *s = sum.data<float>(), *x_target = target.data<float>();
  dispatch(logits, [&]<class Real>(Real) {
    loss.all_rows<Real>(ctx, [&](const Real*, int64_t row, int32_t) {
      return Statistics{.max = m[row], .sum = s[row], .x_target = x_target[row]};
    });
  });
}

}  // namespace ladder::cpu
