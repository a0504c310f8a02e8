// 16-bit activations and FP8 factors. What an operation means for them is: its operands widened,
// the operation in FP32, one rounding of what it stores. So each table must give the bits of its
// own FP32 result, rounded (but products by AMX, whose order differs); and `cpu` and `ref`, whose
// FP32 results differ by d, may differ by d and half a step of the format for each of the two
// roundings.
#pragma once

#include <string_view>
#include <vector>

#include "tests/kernels/cpu_vs_ref.h"
#include "tests/kernels/narrow_trial.h"

namespace ladder::test {

class CpuNarrow : public ::testing::TestWithParam<Dtype> {
 protected:
  const Dtype dtype = GetParam();
  Sandbox values{ref_kernels(), dtype};  // of the operands
  Sandbox cpu{cpu_kernels()}, ref{ref_kernels()};

  CpuNarrow() { cpu.set_threads(2); }

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
inline double rounded_as(const Tensor& x, double value) {
  if (!is_narrow(x.dtype)) return value;
  const Format& f = format_of(x.dtype);
  return widen(f, narrow(f, static_cast<float>(value), overflow_of(x.dtype)));
}

/// Half the distance of neighbors of the size of `value`.
inline double half_step(const Tensor& x, double value) {
  if (!is_narrow(x.dtype)) return 0;
  const Format& f = format_of(x.dtype);
  const double normal = std::max(std::abs(value), std::ldexp(1.0, 1 - f.bias()));
  return std::ldexp(1.0, std::ilogb(normal) - f.mantissa_bits - 1);
}

/// AMX sums products of BF16 and FP8 in an order of its own, which cpu_products_bf16.cpp tests.
inline bool CpuNarrow::has_order_of_fp32(const Op& op, const Sandbox& box) const {
  if (std::string_view(LADDER_GEMM_BF16) != "amx" || &box != &cpu) return true;
  return !op.product || (dtype == Dtype::F16 && !op.of_fp8);
}

inline void CpuNarrow::check(const Op& op) {
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

struct NarrowSizes {
  int64_t B, T, C;
};
constexpr NarrowSizes kNarrowSizes[] = {{1, 1, 1}, {3, 5, 7}, {2, 9, 17}, {12, 16, 130}};

}  // namespace ladder::test
