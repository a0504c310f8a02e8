// 16-bit activations: rows, elements, and sums over tokens.
#include "tests/kernels/cpu_narrow.h"

namespace ladder::test {
namespace {

class CpuNarrowRows : public CpuNarrow {
 protected:
  std::vector<Op> rows(int64_t B, int64_t T, int64_t C);
  std::vector<Op> sums(int64_t B, int64_t T, int64_t C);
};

std::vector<Op> CpuNarrowRows::rows(int64_t B, int64_t T, int64_t C) {
  const Tensor x = values.random({B, T, C}, -1, 3), d = values.random({B, T, C});
  const Tensor w = values.random({C}), bias = values.random({C});
  const Tensor mean = values.random(Dtype::F32, {B, T});
  const Tensor rstd = values.random(Dtype::F32, {B, T}, 0.5, 2);
  const Tensor gates = values.random({B, T, 2 * C}, -6, 6), angles = values.angles(T, 2 * C);
  const Tensor qkv = values.random({B, T, 8 * 2 * C});
  const Tensor wte = values.random({11, C}), wpe = values.random({T + 2, C});
  const Tensor tokens = values.tokens({B, T}, 11), targets = values.tokens({B, T}, C);
  targets.data<int32_t>()[0] = B * T > 1 ? kIgnore : 0;
  const auto one = [=](const char* name, auto run) {
    return Op{name, [=](Trial r) {
                const Tensor out = r.out({B, T, C});
                run(r, out);
                return Outputs{out};
              }};
  };
  return {
      one("embed_forward",
          [=](Trial& r, Tensor out) {
            r.k().embed_forward(r.ctx(), out, tokens, r.in(wte), r.in(wpe));
          }),
      {"norm_forward",
       [=](Trial r) {
         const Outputs out{r.out({B, T, C}), r.sums({B, T}), r.sums({B, T})};
         r.k().norm_forward(r.ctx(), out[0], out[1], out[2], r.in(x), r.in(w), r.in(bias));
         return out;
       }},
      one("norm_backward_input",
          [=](Trial& r, Tensor out) {
            r.k().norm_backward_input(r.ctx(), out, r.in(d), r.in(x), r.in(w), mean, rstd);
          }),
      {"rms_forward",
       [=](Trial r) {
         const Outputs out{r.out({B, T, C}), r.sums({B, T})};
         r.k().norm_forward(r.ctx(), out[0], {}, out[1], r.in(x), r.in(w), {});
         return out;
       }},
      one("rms_backward_input",
          [=](Trial& r, Tensor out) {
            r.k().norm_backward_input(r.ctx(), out, r.in(d), r.in(x), r.in(w), {}, rstd);
          }),
      one("swiglu_forward",
          [=](Trial& r, Tensor out) { r.k().swiglu_forward(r.ctx(), out, r.in(gates)); }),
      {"swiglu_backward",
       [=](Trial r) {
         const Outputs out{r.out({B, T, 2 * C})};
         r.k().swiglu_backward(r.ctx(), out[0], r.in(d), r.in(gates));
         return out;
       }},
      {"rope",
       [=](Trial r) {
         const Outputs out{r.in(qkv)};
         r.k().rope(r.ctx(), out[0], angles, 4, false);
         return out;
       }},
      one("gelu_forward", [=](Trial& r, Tensor out) { r.k().gelu_forward(r.ctx(), out, r.in(x)); }),
      one("gelu_backward",
          [=](Trial& r, Tensor out) { r.k().gelu_backward(r.ctx(), out, r.in(d), r.in(x)); }),
      one("residual_forward",
          [=](Trial& r, Tensor out) {
            r.k().residual_forward(r.ctx(), out, r.in(x), r.in(d), r.in(bias));
          }),
      one("residual_forward without bias",
          [=](Trial& r, Tensor out) {
            r.k().residual_forward(r.ctx(), out, r.in(x), r.in(d), {});
          }),
      one("embed_forward without positions",
          [=](Trial& r, Tensor out) { r.k().embed_forward(r.ctx(), out, tokens, r.in(wte), {}); }),
      one("add", [=](Trial& r, Tensor out) { r.k().add(r.ctx(), out, r.in(x), r.in(d)); }),
      {"scale",
       [=](Trial r) {
         const Outputs out{r.in(x)};
         r.k().scale(r.ctx(), out[0], 0.7F);
         return out;
       }},
      {"cross_entropy",
       [=](Trial r) {
         const Outputs out{r.sums({B}), r.out({B, T, C})};
         r.k().cross_entropy(r.ctx(), out[0], out[1], r.in(x), targets, C, 0.3F);
         return out;
       }},
      {"cross_entropy in place",
       [=](Trial r) {
         const Outputs out{r.sums({B}), r.in(x)};
         r.k().cross_entropy(r.ctx(), out[0], out[1], out[1], targets, C, 0.3F);
         return out;
       }},
  };
}

std::vector<Op> CpuNarrowRows::sums(int64_t B, int64_t T, int64_t C) {
  const Tensor x = values.random({B, T, C}, -1, 3), d = values.random({B, T, C});
  const Tensor mean = values.random(Dtype::F32, {B, T});
  const Tensor rstd = values.random(Dtype::F32, {B, T}, 0.5, 2);
  const Tensor tokens = values.tokens({B, T}, 11);
  std::vector<Op> ops;
  for (const Into into : {Into::Write, Into::Add}) {
    ops.push_back({"embed_backward", [=](Trial r) {
                     const Outputs out{r.sums({11, C}), r.sums({T + 2, C})};
                     r.k().embed_backward(r.ctx(), out[0], out[1], r.in(d), tokens, into);
                     return out;
                   }});
    ops.push_back({"norm_backward_weight", [=](Trial r) {
                     const Outputs out{r.sums({C}), r.sums({C})};
                     r.k().norm_backward_weight(r.ctx(), out[0], out[1], r.in(d), r.in(x), mean,
                                                rstd, into);
                     return out;
                   }});
    ops.push_back({"rms_backward_weight", [=](Trial r) {
                     const Outputs out{r.sums({C})};
                     r.k().norm_backward_weight(r.ctx(), out[0], {}, r.in(d), r.in(x), {}, rstd,
                                                into);
                     return out;
                   }});
    ops.push_back({"bias_backward", [=](Trial r) {
                     const Outputs out{r.sums({C})};
                     r.k().bias_backward(r.ctx(), out[0], r.in(d), into);
                     return out;
                   }});
    ops.push_back({"matmul_backward_weight",
                   [=](Trial r) {
                     const Outputs out{r.sums({C, C})};
                     r.k().matmul_backward_weight(r.ctx(), out[0], r.in(d), r.in(x), into);
                     return out;
                   },
                   true});
  }
  return ops;
}

TEST_P(CpuNarrowRows, RowsAreFp32RoundedOnce) {
  for (const auto& [B, T, C] : kNarrowSizes) check(rows(B, T, C));
}

TEST_P(CpuNarrowRows, GradientsOfParametersAreFp32) {
  for (const auto& [B, T, C] : kNarrowSizes) check(sums(B, T, C));
}

INSTANTIATE_TEST_SUITE_P(Formats, CpuNarrowRows, ::testing::Values(Dtype::BF16, Dtype::F16),
                         dtype_name);

}  // namespace
}  // namespace ladder::test
