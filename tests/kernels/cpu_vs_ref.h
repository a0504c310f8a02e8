// `cpu` in FP32 against `ref` in double, on the same numbers. Every tolerance is derived from the
// number of rounded operations behind an element and the size of its terms.
#pragma once

#include <algorithm>
#include <bit>
#include <functional>

#include "kernels/tree.h"
#include "tests/kernels/testing.h"

namespace ladder::test {

/// Half a unit in the last place of a float near 1: the largest error of one rounding.
constexpr double kRound = 0x1p-24;
/// Below this a float has lost digits to underflow.
constexpr double kTiny = 1e-36;

class CpuVsRef : public ::testing::Test {
 protected:
  Sandbox fast{cpu_kernels()};
  Sandbox exact{ref_kernels(), Dtype::F64};
  const Kernels& cpu = fast.kernels();
  const Kernels& ref = exact.kernels();

  CpuVsRef() { fast.set_threads(3); }

  /// f of each element, in double.
  Tensor map(const Tensor& x, const std::function<double(double)>& f) {
    const Tensor y = exact.empty(x.shape);
    for (int64_t i = 0; i < x.size(); ++i) set(y, i, f(at(x, i)));
    return y;
  }
  Tensor wide(const Tensor& x) {
    return map(x, [](double v) { return v; });
  }
  Tensor size(const Tensor& x) {
    return map(x, [](double v) { return std::abs(v); });
  }
  static double largest(const Tensor& x) {
    double most = 0;
    for (int64_t i = 0; i < x.size(); ++i) most = std::max(most, std::abs(at(x, i)));
    return most;
  }

  /// |got - want| <= bound(i) for every element; a NaN fails.
  static void expect_near(const std::string& what, const Tensor& got, const Tensor& want,
                          const std::function<double(int64_t)>& bound) {
    ASSERT_EQ(got.size(), want.size()) << what;
    for (int64_t i = 0; i < got.size(); ++i) {
      const double error = std::abs(at(got, i) - at(want, i));
      ASSERT_TRUE(error <= bound(i))
          << what << " " << to_string(got.shape) << "[" << i << "] is " << at(got, i) << ", not "
          << at(want, i) << "; allowed " << bound(i);
    }
  }
};

/// Roundings on the way of one term through a sum of K terms in `leaves` leaves: its leaf, the
/// tree, and the one before and the one after.
inline double sum_roundings(int64_t K, int64_t leaves) {
  const int64_t longest = (K + leaves - 1) / leaves;
  return static_cast<double>(longest + std::bit_width(static_cast<uint64_t>(leaves)) + 2);
}
/// The same for a sum in 16 lanes.
inline double lane_roundings(int64_t n) { return static_cast<double>(n / 16 + 8); }

}  // namespace ladder::test
