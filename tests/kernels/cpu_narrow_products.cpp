// 16-bit activations and FP8 factors: products.
#include "tests/kernels/cpu_narrow.h"

namespace ladder::test {
namespace {

class CpuNarrowProducts : public CpuNarrow {
 protected:
  std::vector<Op> products(int64_t B, int64_t T, int64_t K);
};

/// matmul_* with every choice of FP8 factors that chapter 16 makes: E4M3 but for dout, E5M2.
std::vector<Op> CpuNarrowProducts::products(int64_t B, int64_t T, int64_t K) {
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

TEST_P(CpuNarrowProducts, ProductsAreFp32RoundedOnce) {
  for (const auto& [B, T, C] : kNarrowSizes) check(products(B, T, C));
}

/// Small integers: every sum is exact, in FP32 and in BF16, so there is one right answer.
TEST_P(CpuNarrowProducts, AnFp8ProductOfIntegersIsExact) {
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

INSTANTIATE_TEST_SUITE_P(Formats, CpuNarrowProducts, ::testing::Values(Dtype::BF16, Dtype::F16),
                         dtype_name);

}  // namespace
}  // namespace ladder::test
