// Layer norm and RMSNorm: rows shorter and longer than a warp, aligned for wide accesses and not.
#include "tests/kernels/operations/vs_ref.h"

namespace ladder::test {
namespace {

struct Batch {
  int64_t B, T, C;
};
// From C = 64 on in accesses of 16 bytes, for 16-bit formats, too. The last rows are too long for
// registers.
constexpr Batch kBatches[] = {{1, 1, 1},     {3, 5, 7},    {2, 9, 17},   {5, 1, 33},
                              {300, 1, 9},   {2, 9, 64},   {2, 20, 136}, {1, 12, 1032},
                              {12, 64, 128}, {1, 2, 13000}};

/// Layer norm, the same without bias, RMSNorm.
struct Form {
  bool centred, biased;
};

class Norm : public VsRef, public ::testing::WithParamInterface<Form> {
 protected:
  const bool centred = GetParam().centred, biased = GetParam().biased;
};

TEST_P(Norm, Forward) {
  for (const Dtype dtype : kReals)
    for (const auto& [B, T, C] : kBatches) {
      const Tensor inp = host.random(dtype, {B, T, C}, -1, 3);
      const Tensor w = host.random(dtype, {C}), b = biased ? host.random(dtype, {C}) : Tensor{};
      const Tensor y = exact.empty(inp.shape), r = exact.empty({B, T});
      const Tensor m = centred ? exact.empty({B, T}) : Tensor{};
      const Tensor got = out(dtype, inp.shape), rstd = out(Dtype::F32, {B, T});
      const Tensor mean = centred ? out(Dtype::F32, {B, T}) : Tensor{};
      k.norm_forward(ctx, got, mean, rstd, up(inp), up(w), up(b));
      ref.norm_forward(exact.ctx(), y, m, r, wide(inp), wide(w), wide(b));
      // d: the error of a mean of values up to 3, hence of a centered value; it changes the
      // variance by at most 2 d / rstd + d^2, and rstd relatively by d rstd (1 + d rstd) and the
      // roundings.
      const double unit = kRound * interleaved_roundings(C, 16), d = centred ? 3 * unit : 0;
      if (centred) expect_near("mean", mean, m, [&](int64_t) { return d; });
      const auto relative = [&](int64_t row) {
        return d * at(r, row) * (1 + d * at(r, row)) + 2 * unit;
      };
      expect_near("rstd", rstd, r, [&](int64_t row) { return relative(row) * at(r, row); });
      expect_near("out", got, y, [&](int64_t i) {
        const double xhat = std::abs(at(inp, i) - (centred ? at(m, i / C) : 0)) * at(r, i / C);
        const double error = d * at(r, i / C) + (xhat + d * at(r, i / C)) * relative(i / C);
        return std::abs(at(w, i % C)) * error + 4 * kRound * (xhat + 1);
      });
    }
}

TEST_P(Norm, BackwardInput) {
  for (const Dtype dtype : kReals)
    for (const auto& [B, T, C] : kBatches) {
      const Tensor inp = host.random(dtype, {B, T, C}), dout = host.random(dtype, {B, T, C});
      const Tensor w = host.random(dtype, {C});
      const Tensor mean = centred ? host.random({B, T}) : Tensor{};
      const Tensor rstd = host.random({B, T}, 0.5, 2);
      const Tensor got = out(dtype, inp.shape), want = exact.empty(inp.shape);
      k.norm_backward_input(ctx, got, up(dout), up(inp), up(w), up(mean), up(rstd));
      ref.norm_backward_input(exact.ctx(), want, wide(dout), wide(inp), wide(w), wide(mean),
                              wide(rstd));
      // |g| <= 1, |xhat| <= 2 rstd: the three terms are at most 1, 1 and (2 rstd)^2.
      const double unit = kRound * interleaved_roundings(C, 16);
      expect_near("dinp", got, want, [&](int64_t i) {
        const double r = at(rstd, i / C);
        return unit * r * (2 + 4 * r * r);
      });
    }
}

TEST_P(Norm, BackwardWeight) {
  for (const Dtype dtype : kReals)
    for (const auto& [B, T, C] : kBatches)
      for (const Into into : {Into::Write, Into::Add}) {
        const Tensor dout = host.random(dtype, {B, T, C}), inp = host.random(dtype, {B, T, C});
        const Tensor mean = centred ? host.random({B, T}) : Tensor{};
        const Tensor rstd = host.random({B, T}, 0.5, 2), dw0 = host.random({C});
        const Tensor db0 = biased ? host.random({C}) : Tensor{}, dw = up(dw0), db = up(db0);
        const Tensor dw_want = wide(dw0), db_want = wide(db0);
        const Tensor dw_terms = size(dw0), db_terms = size(db0);
        k.norm_backward_weight(ctx, dw, db, up(dout), up(inp), up(mean), up(rstd), into);
        ref.norm_backward_weight(exact.ctx(), dw_want, db_want, wide(dout), wide(inp), wide(mean),
                                 wide(rstd), into);
        // |inp - mean| is at most 1 + |mean|: the terms of a norm with mean -1 - |mean| of 0.
        const Tensor below = centred ? map(mean, [](double v) { return -1 - std::abs(v); })
                                     : exact.filled({B, T}, -1);
        ref.norm_backward_weight(exact.ctx(), dw_terms, db_terms, size(dout),
                                 exact.filled(inp.shape, 0), below, wide(rstd), into);
        const double roundings = interleaved_roundings(T, kLeaves) + interleaved_roundings(B, B);
        expect_near("dw", dw, dw_want,
                    [&](int64_t i) { return kRound * roundings * at(dw_terms, i); });
        if (!biased) continue;
        expect_near("db", db, db_want,
                    [&](int64_t i) { return kRound * roundings * at(db_terms, i); });
      }
}

INSTANTIATE_TEST_SUITE_P(Forms, Norm,
                         ::testing::Values(Form{true, true}, Form{true, false}, Form{false, false}),
                         [](const auto& i) {
                           return !i.param.centred ? "Rms"
                                  : i.param.biased ? "Layer"
                                                   : "LayerWithoutBias";
                         });

using LayerNorm = VsRef;

TEST_F(LayerNorm, NaNReachesItsRowAndNoOther) {
  const Tensor inp = host.random({1, 3, 64});
  set(inp, 64 + 40, NAN);
  const Tensor got = out(Dtype::F32, inp.shape), w = up(host.random({64}));
  k.norm_forward(ctx, got, out(Dtype::F32, {1, 3}), out(Dtype::F32, {1, 3}), up(inp), w, w);
  const Tensor y = down(got);
  for (int64_t i = 0; i < y.size(); ++i) EXPECT_EQ(std::isnan(at(y, i)), i / 64 == 1) << i;
}

}  // namespace
}  // namespace ladder::test
