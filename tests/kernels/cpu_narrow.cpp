// 16-bit activations and FP8 factors. What an operation means for them is: its operands widened,
// the operation in FP32, one rounding of what it stores. So each table must give the bits of its
// own FP32 result, rounded (but products by AMX, whose order differs); and `cpu` and `ref`, whose
// FP32 results differ by d, may differ by d and half a step of the format for each of the two
// roundings.
#include <string_view>

#include "tests/kernels/cpu_vs_ref.h"
#include "tests/kernels/narrow_trial.h"

namespace ladder::test {
namespace {

class CpuNarrow : public ::testing::TestWithParam<Dtype> {
 protected:
  const Dtype dtype = GetParam();
  Sandbox values{ref_kernels(), dtype};  // of the operands
  Sandbox cpu{cpu_kernels()}, ref{ref_kernels()};

  CpuNarrow() { cpu.set_threads(2); }

  std::vector<Op> rows(int64_t B, int64_t T, int64_t C);
  std::vector<Op> sums(int64_t B, int64_t T, int64_t C);
  std::vector<Op> products(int64_t B, int64_t T, int64_t K);

  void check(const std::vector<Op>& ops) {
    for (const Op& op : ops) check(op);
  }
  void check(const Op& op);
  bool has_order_of_fp32(const Op& op, const Sandbox& box) const;
  Tensor random_fp8(Dtype format, Shape shape, Fp8Scale& scale) {
    Tensor x = values.empty(format, shape);
    x.fp8 = &scale;
    const Tensor r = values.random(Dtype::F32, shape, -3, 3);
    for (int64_t i = 0; i < x.size(); ++i) set(x, i, at(r, i));
    return x;
  }
};

/// `value` as it is stored in a tensor like x.
double rounded_as(const Tensor& x, double value) {
  if (!is_narrow(x.dtype)) return value;
  const Format& f = format_of(x.dtype);
  return widen(f, narrow(f, static_cast<float>(value), overflow_of(x.dtype)));
}

/// Half the distance of neighbours of the size of `value`.
double half_step(const Tensor& x, double value) {
  if (!is_narrow(x.dtype)) return 0;
  const Format& f = format_of(x.dtype);
  const double normal = std::max(std::abs(value), std::ldexp(1.0, 1 - f.bias()));
  return std::ldexp(1.0, std::ilogb(normal) - f.mantissa_bits - 1);
}

/// AMX sums products of BF16 and FP8 in an order of its own, which cpu_products_bf16.cpp tests.
bool CpuNarrow::has_order_of_fp32(const Op& op, const Sandbox& box) const {
  if (std::string_view(LADDER_GEMM_BF16) != "amx" || &box != &cpu) return true;
  return !op.product || (dtype == Dtype::F16 && !op.of_fp8);
}

void CpuNarrow::check(const Op& op) {
  const auto boxes = {&cpu, &ref};
  std::vector<Outputs> narrow_runs, wide_runs;
  for (Sandbox* box : boxes) {
    narrow_runs.push_back(op.run(Trial(*box, dtype)));
    wide_runs.push_back(op.run(Trial(*box, Dtype::F32)));
    for (size_t o = 0; o < narrow_runs.back().size(); ++o) {
      const Tensor &got = narrow_runs.back()[o], &wide = wide_runs.back()[o];
      for (int64_t i = 0; i < got.size() && has_order_of_fp32(op, *box); ++i)
        ASSERT_EQ(at(got, i), rounded_as(got, at(wide, i)))
            << box->kernels().name << " " << op.name << " output " << o << ", element " << i;
    }
  }
  for (size_t o = 0; o < narrow_runs[0].size(); ++o) {
    const Tensor &a = narrow_runs[0][o], &b = narrow_runs[1][o];
    EXPECT_LT(relative_error(wide_runs[0][o], wide_runs[1][o]), 1e-5) << op.name << o;
    if (!has_order_of_fp32(op, cpu)) {
      const double rounding = is_narrow(a.dtype) ? half_step(a, 1) : 1e-5;
      EXPECT_LT(relative_error(a, b), 2 * rounding) << op.name << o;
      continue;
    }
    for (int64_t i = 0; i < a.size(); ++i) {
      const double x = at(wide_runs[0][o], i), y = at(wide_runs[1][o], i);
      ASSERT_LE(std::abs(at(a, i) - at(b, i)), std::abs(x - y) + half_step(a, x) + half_step(b, y))
          << op.name << " output " << o << ", element " << i;
    }
  }
}

std::vector<Op> CpuNarrow::rows(int64_t B, int64_t T, int64_t C) {
  const Tensor x = values.random({B, T, C}, -1, 3), d = values.random({B, T, C});
  const Tensor w = values.random({C}), bias = values.random({C});
  const Tensor mean = values.random(Dtype::F32, {B, T});
  const Tensor rstd = values.random(Dtype::F32, {B, T}, 0.5, 2);
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
      one("gelu_forward", [=](Trial& r, Tensor out) { r.k().gelu_forward(r.ctx(), out, r.in(x)); }),
      one("gelu_backward",
          [=](Trial& r, Tensor out) { r.k().gelu_backward(r.ctx(), out, r.in(d), r.in(x)); }),
      one("residual_forward",
          [=](Trial& r, Tensor out) {
            r.k().residual_forward(r.ctx(), out, r.in(x), r.in(d), r.in(bias));
          }),
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

std::vector<Op> CpuNarrow::sums(int64_t B, int64_t T, int64_t C) {
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

/// matmul_* with every choice of FP8 factors that chapter 16 makes: E4M3 but for dout, E5M2.
std::vector<Op> CpuNarrow::products(int64_t B, int64_t T, int64_t K) {
  static Fp8Scale eighth{.scale = 0.125F}, sixteen{.scale = 16};
  const int64_t N = 45;
  const Tensor x = values.random({B, T, K}), w = values.random({N, K}), bias = values.random({N});
  const Tensor dout = values.random({B, T, N});
  const Tensor x8 = random_fp8(Dtype::E4M3, x.shape, sixteen);
  const Tensor w8 = random_fp8(Dtype::E4M3, w.shape, eighth);
  const Tensor d8 = random_fp8(Dtype::E5M2, dout.shape, sixteen);
  const auto factor = [](Trial& r, const Tensor& t) {
    return is_fp8(t.dtype) ? r.fp8(t, t.dtype) : r.in(t);
  };
  std::vector<Op> ops;
  for (const auto& [a, b, c] : {std::array{x, w, dout}, {x8, w8, d8}, {x8, w, dout}}) {
    ops.push_back({"matmul_forward",
                   [=, a = a, b = b](Trial r) {
                     const Outputs out{r.out({B, T, N})};
                     r.k().matmul_forward(r.ctx(), out[0], factor(r, a), factor(r, b), r.in(bias),
                                          8);
                     return out;
                   },
                   true, is_fp8(a.dtype) && is_fp8(b.dtype)});
    ops.push_back({"matmul_backward_input",
                   [=, b = b, c = c](Trial r) {
                     const Outputs out{r.out({B, T, K})};
                     r.k().matmul_backward_input(r.ctx(), out[0], factor(r, c), factor(r, b), 8);
                     return out;
                   },
                   true, is_fp8(b.dtype) && is_fp8(c.dtype)});
    if (is_fp8(a.dtype) != is_fp8(c.dtype)) continue;
    ops.push_back({"matmul_backward_weight",
                   [=, a = a, c = c](Trial r) {
                     const Outputs out{r.sums({N, K})};
                     r.k().matmul_backward_weight(r.ctx(), out[0], factor(r, c), factor(r, a),
                                                  Into::Add);
                     return out;
                   },
                   true, is_fp8(a.dtype)});
  }
  return ops;
}

struct Sizes {
  int64_t B, T, C;
};
constexpr Sizes kSizes[] = {{1, 1, 1}, {3, 5, 7}, {2, 9, 17}, {12, 16, 130}};

TEST_P(CpuNarrow, RowsAreFp32RoundedOnce) {
  for (const auto& [B, T, C] : kSizes) check(rows(B, T, C));
}

TEST_P(CpuNarrow, GradientsOfParametersAreFp32) {
  for (const auto& [B, T, C] : kSizes) check(sums(B, T, C));
}

TEST_P(CpuNarrow, ProductsAreFp32RoundedOnce) {
  for (const auto& [B, T, C] : kSizes) check(products(B, T, C));
}

/// Small integers: every sum is exact, in FP32 and in BF16, so there is one right answer.
TEST_P(CpuNarrow, AnFp8ProductOfIntegersIsExact) {
  const int64_t B = 2, T = 9, N = 21, K = 17;
  Fp8Scale quarter{.scale = 0.25F}, two{.scale = 2}, four{.scale = 4};
  const auto integers = [&](Dtype format, Shape shape, int64_t step, Fp8Scale& scale) {
    Tensor x = values.empty(format, shape);
    x.fp8 = &scale;
    for (int64_t i = 0; i < x.size(); ++i) set(x, i, static_cast<double>(i * step % 7 - 3));
    return x;
  };
  const Tensor x = integers(Dtype::E4M3, {B, T, K}, 5, quarter);
  const Tensor w = integers(Dtype::E4M3, {N, K}, 3, two);
  const Tensor d = integers(Dtype::E5M2, {B, T, N}, 4, four);
  for (Sandbox* box : {&cpu, &ref}) {
    const Kernels& k = box->kernels();
    const Tensor out = box->empty(dtype, {B, T, N}), dinp = box->empty(dtype, {B, T, K});
    const Tensor dw = box->empty({N, K});
    k.matmul_forward(box->ctx(), out, x, w, Tensor{}, 8);
    k.matmul_backward_input(box->ctx(), dinp, d, w, 8);
    k.matmul_backward_weight(box->ctx(), dw, d, x, Into::Write);
    const auto sum = [](int64_t n, auto term) {
      double total = 0;
      for (int64_t i = 0; i < n; ++i) total += term(i);
      return total;
    };
    for (int64_t i = 0; i < out.size(); ++i)
      ASSERT_EQ(at(out, i),
                sum(K, [&](int64_t j) { return at(x, i / N * K + j) * at(w, i % N * K + j); }));
    for (int64_t i = 0; i < dinp.size(); ++i)
      ASSERT_EQ(at(dinp, i),
                sum(N, [&](int64_t j) { return at(d, i / K * N + j) * at(w, j * K + i % K); }));
    for (int64_t i = 0; i < dw.size(); ++i)
      ASSERT_EQ(at(dw, i),
                sum(B * T, [&](int64_t j) { return at(d, j * N + i / K) * at(x, j * K + i % K); }));
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, CpuNarrow, ::testing::Values(Dtype::BF16, Dtype::F16),
                         [](const auto& i) { return i.param == Dtype::BF16 ? "BF16" : "F16"; });

}  // namespace
}  // namespace ladder::test
