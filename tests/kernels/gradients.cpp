// The gradient of every operation, `ref` in double, against central differences.
#include <functional>

#include "tests/kernels/experts.h"
#include "tests/kernels/testing.h"

namespace ladder::test {
namespace {

// The error of central differences is about h^2 + eps / h: 1e-10 for values near 1.
constexpr double kStep = 1e-5;
constexpr double kTolerance = 1e-8;

/// d loss / d x by central differences, as a tensor like x.
Tensor numeric(Sandbox& box, const Tensor& x, const std::function<double()>& loss) {
  const Tensor gradient = box.empty(x.shape);
  for (int64_t i = 0; i < x.size(); ++i) {
    const double value = at(x, i);
    set(x, i, value + kStep);
    const double above = loss();
    set(x, i, value - kStep);
    const double below = loss();
    set(x, i, value);
    set(gradient, i, (above - below) / (2 * kStep));
  }
  return gradient;
}

/// A loss whose gradient with respect to out is dout: sum of out dout.
double dot(const Tensor& out, const Tensor& dout) {
  double sum = 0;
  for (int64_t i = 0; i < out.size(); ++i) sum += at(out, i) * at(dout, i);
  return sum;
}

class Gradients : public RefInDouble {
 protected:
  void expect_gradient(const char* name, const Tensor& got, const Tensor& x,
                       const std::function<double()>& loss) {
    EXPECT_LT(relative_error(got, numeric(box, x, loss)), kTolerance)
        << name << " " << to_string(got.shape);
  }
};

TEST_F(Gradients, Embed) {
  for (const auto& [B, T, C] : {std::array{1, 1, 3}, std::array{3, 5, 3}, std::array{5, 8, 4}}) {
    const int64_t V = 7, P = T + 2;
    const Tensor wte = box.random({V, C}), wpe = box.random({P, C}), tokens = box.tokens({B, T}, V);
    const Tensor out = box.empty({B, T, C}), dout = box.random({B, T, C});
    const auto loss = [&] {
      k.embed_forward(ctx, out, tokens, wte, wpe);
      return dot(out, dout);
    };
    const Tensor dwte = box.empty({V, C}), dwpe = box.empty({P, C});
    k.embed_backward(ctx, dwte, dwpe, dout, tokens, Into::Write);
    expect_gradient("dwte", dwte, wte, loss);
    expect_gradient("dwpe", dwpe, wpe, loss);
    const Tensor alone = box.empty({V, C});
    k.embed_backward(ctx, alone, Tensor{}, dout, tokens, Into::Write);
    EXPECT_TRUE(same_bits(alone, dwte));
  }
}

/// Layer norm, and RMSNorm, which is not centred.
TEST_F(Gradients, Norm) {
  for (const bool centred : {true, false})
    for (const bool biased : {true, false})
      for (const auto& [B, T, C] :
           {std::array{1, 1, 3}, std::array{3, 5, 3}, std::array{2, 9, 8}}) {
        const Tensor inp = box.random({B, T, C}), w = box.random({C});
        const Tensor b = biased ? box.random({C}) : Tensor{};
        const Tensor mean = centred ? box.empty({B, T}) : Tensor{};
        const Tensor out = box.empty({B, T, C}), rstd = box.empty({B, T});
        const Tensor dout = box.random({B, T, C});
        const auto loss = [&] {
          k.norm_forward(ctx, out, mean, rstd, inp, w, b);
          return dot(out, dout);
        };
        loss();
        const Tensor dinp = box.empty({B, T, C}), dw = box.empty({C});
        const Tensor db = biased ? box.empty({C}) : Tensor{};
        k.norm_backward_input(ctx, dinp, dout, inp, w, mean, rstd);
        k.norm_backward_weight(ctx, dw, db, dout, inp, mean, rstd, Into::Write);
        expect_gradient("dinp", dinp, inp, loss);
        expect_gradient("dw", dw, w, loss);
        if (biased) expect_gradient("db", db, b, loss);
      }
}

TEST_F(Gradients, Matmul) {
  for (const auto& [B, T, K, N] :
       {std::array{1, 1, 3, 5}, std::array{3, 5, 7, 3}, std::array{5, 9, 16, 6}})
    for (const int leaves : {1, 3, 8}) {
      const Tensor inp = box.random({B, T, K}), w = box.random({N, K}), bias = box.random({N});
      const Tensor out = box.empty({B, T, N}), dout = box.random({B, T, N});
      const auto loss = [&] {
        k.matmul_forward(ctx, out, inp, w, bias, leaves);
        return dot(out, dout);
      };
      const Tensor dinp = box.empty({B, T, K}), dw = box.empty({N, K}), db = box.empty({N});
      k.matmul_backward_input(ctx, dinp, dout, w, leaves);
      k.matmul_backward_weight(ctx, dw, dout, inp, Into::Write);
      k.bias_backward(ctx, db, dout, Into::Write);
      expect_gradient("dinp", dinp, inp, loss);
      expect_gradient("dw", dw, w, loss);
      expect_gradient("db", db, bias, loss);
    }
}

TEST_F(Gradients, Gelu) {
  const Tensor inp = box.random({3, 5, 7}, -4, 4), out = box.empty({3, 5, 7});
  const Tensor dout = box.random({3, 5, 7}), dinp = box.empty({3, 5, 7});
  k.gelu_backward(ctx, dinp, dout, inp);
  expect_gradient("dinp", dinp, inp, [&] {
    k.gelu_forward(ctx, out, inp);
    return dot(out, dout);
  });
}

TEST_F(Gradients, Swiglu) {
  const Tensor inp = box.random({3, 5, 14}, -4, 4), out = box.empty({3, 5, 7});
  const Tensor dout = box.random({3, 5, 7}), dinp = box.empty(inp.shape);
  k.swiglu_backward(ctx, dinp, dout, inp);
  const auto loss = [&] {
    k.swiglu_forward(ctx, out, inp);
    return dot(out, dout);
  };
  expect_gradient("dinp", dinp, inp, loss);
  // Negative control: gates and values change places.
  const Tensor swapped = box.copy(dinp);
  for (int64_t i = 0; i < dinp.size(); ++i) set(swapped, i, at(dinp, i ^ 1));
  EXPECT_GT(relative_error(swapped, numeric(box, inp, loss)), 0.1);
}

TEST_F(Gradients, Rope) {
  for (const auto& [B, T, NH, NKV, HS] :
       {std::array{1, 2, 1, 1, 2}, std::array{2, 7, 4, 2, 6}, std::array{3, 5, 3, 3, 4}}) {
    const Tensor angles = box.angles(T, HS), qkv = box.random({B, T, (NH + 2 * NKV) * HS});
    const Tensor dout = box.random(qkv.shape), turned = box.copy(dout);
    k.rope(ctx, turned, angles, NH, true);
    const auto loss = [&, NH = NH] {
      const Tensor out = box.copy(qkv);
      k.rope(ctx, out, angles, NH, false);
      return dot(out, dout);
    };
    expect_gradient("dqkv", turned, qkv, loss);
    const Tensor forth = box.copy(dout);
    k.rope(ctx, forth, angles, NH, false);
    EXPECT_GT(relative_error(forth, numeric(box, qkv, loss)), 0.1) << "not back";
  }
}

// The gradient of the chosen weights. A small step does not change which experts a token takes.
TEST_F(Gradients, Route) {
  const int64_t B = 2, T = 5, E = 6;
  const Tensor logits = box.random({B, T, E}, -3, 3), bias = box.random({E}, -0.2, 0.2);
  for (const int64_t takes : {1, 3})
    for (const RouteRule rule :
         {RouteRule{false, false}, {false, true}, {true, false}, {true, true}})
      for (const auto& [balance, z] : {std::array{0.0F, 0.0F}, {0.75F, 0.0F}, {0.0F, 0.5F}}) {
        const Tensor dweight = box.random({B, T, takes}), dlogits = box.empty(logits.shape);
        const auto loss = [&, balance = balance, z = z] {
          const Routed r = route(box, logits, takes, bias, rule);
          double sum = dot(r.weight, dweight);
          for (int64_t b = 0; b < B; ++b)
            sum += balance * at(r.losses, b) + z * at(r.losses, B + b);
          return sum;
        };
        const Routed r = route(box, logits, takes, bias, rule);
        k.route_backward(ctx, dlogits, dweight, r.expert, r.scores, r.load, logits, rule, balance,
                         z);
        // A single renormalized weight is always 1: its gradient is only rounding.
        if (takes > 1 || !rule.renormalize || balance + z > 0)
          expect_gradient("dlogits", dlogits, logits, loss);
        // Negative control: without the losses.
        if (balance + z == 0) continue;
        k.route_backward(ctx, dlogits, dweight, r.expert, r.scores, r.load, logits, rule, 0, 0);
        EXPECT_GT(relative_error(dlogits, numeric(box, logits, loss)), 1e-3);
      }
}

// All operations of a layer of experts, with dropped tokens.
TEST_F(Gradients, Experts) {
  const int64_t B = 2, T = 7, E = 4, takes = 3, C = 5, N = 6, pairs = B * T * takes;
  const Tensor x = box.random({B, T, C}), w = box.random({E, N, C});
  const Tensor weight = box.random({B, T, takes}), expert = choices(box, B, T, takes, E);
  const ExpertRows rows = sorted(box, expert, E, 5);
  ASSERT_LT(used(rows), pairs);
  const Tensor inp = box.filled({pairs, C}, 0), y = box.filled({pairs, N}, 0);
  const Tensor out = box.empty({B, T, N}), dout = box.random(out.shape);
  const auto loss = [&] {
    k.gather_rows(ctx, inp, x, rows);
    k.grouped_matmul_forward(ctx, y, inp, w, rows, 2);
    k.unpermute_forward(ctx, out, y, rows, expert, weight);
    return dot(out, dout);
  };
  loss();
  const Tensor dy = box.empty(y.shape), dinp = box.empty(inp.shape), dx = box.empty(x.shape);
  const Tensor dweight = box.empty(weight.shape), dw = box.empty(w.shape);
  k.unpermute_backward(ctx, dy, dweight, dout, y, rows, weight);
  k.grouped_matmul_backward_input(ctx, dinp, dy, w, rows, 2);
  k.grouped_matmul_backward_weight(ctx, dw, dy, inp, rows, Into::Write);
  k.unpermute_forward(ctx, dx, dinp, rows, expert, {});
  expect_gradient("dweight", dweight, weight, loss);
  expect_gradient("dw", dw, w, loss);
  expect_gradient("dx", dx, x, loss);
}

TEST_F(Gradients, Attention) {
  // Also with two and three query heads to a key-value head, and with keys in four chunks.
  for (const auto& [B, T, NH, NKV, HS] :
       {std::array{1, 1, 1, 1, 3}, std::array{3, 5, 3, 3, 1}, std::array{2, 9, 3, 3, 4},
        std::array{2, 7, 4, 2, 3}, std::array{1, 8, 6, 2, 2}, std::array{1, 128, 2, 1, 1}}) {
    const Tensor qkv = box.random({B, T, (NH + 2 * NKV) * HS}, -2, 2);
    const Tensor dout = box.random({B, T, NH * HS});
    const Tensor out = box.empty(dout.shape), lse = box.empty({B, NH, T});
    const auto loss = [&] {
      k.attention_forward(ctx, out, lse, qkv);
      return dot(out, dout);
    };
    loss();
    const Tensor dqkv = box.empty(qkv.shape);
    k.attention_backward(ctx, dqkv, dout, qkv, out, lse);
    expect_gradient("dqkv", dqkv, qkv, loss);
  }
}

TEST_F(Gradients, CrossEntropy) {
  for (const auto& [B, T, V, vocab] :
       {std::array{1, 1, 7, 7}, std::array{3, 5, 16, 7}, std::array{5, 2, 8, 8}}) {
    const Tensor logits = box.random({B, T, V}, -3, 3), targets = box.tokens({B, T}, vocab);
    if (B > 1) targets.data<int32_t>()[1] = targets.data<int32_t>()[B * T - 1] = kIgnore;
    const Tensor losses = box.empty({B}), dlogits = box.empty({B, T, V});
    const float scale = 0.25F;
    k.cross_entropy(ctx, losses, dlogits, logits, targets, vocab, scale);
    expect_gradient("dlogits", dlogits, logits, [&] {
      k.cross_entropy(ctx, losses, Tensor{}, logits, targets, vocab, scale);
      return dot(losses, box.filled({B}, scale));
    });
    const Tensor both = box.copy(logits);
    k.cross_entropy(ctx, losses, both, both, targets, vocab, scale);
    EXPECT_TRUE(same_bits(both, dlogits));
  }
}

}  // namespace
}  // namespace ladder::test
