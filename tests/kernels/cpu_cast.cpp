// The vector paths of `cast` against kernels/narrow.h, a value at a time: same bits.
#include <algorithm>

#include "tests/kernels/narrow_cases.h"
#include "tests/kernels/testing.h"

namespace ladder::test {
namespace {

constexpr Dtype kNarrow[] = {Dtype::BF16, Dtype::F16, Dtype::E4M3, Dtype::E5M2};

class CpuCast : public ::testing::Test {
 protected:
  Sandbox box{cpu_kernels()};

  CpuCast() { box.set_threads(2); }

  Tensor of_floats(const std::vector<float>& values) {
    const Tensor x = box.empty({static_cast<int64_t>(values.size())});
    std::copy(values.begin(), values.end(), x.data<float>());
    return x;
  }
  Tensor all_codes(Dtype dtype) {
    const Tensor x = box.empty(dtype, {int64_t{1} << format_of(dtype).bits()});
    for (int64_t i = 0; i < x.size(); ++i) set_code(x, i, static_cast<uint32_t>(i));
    return x;
  }

  /// cast(inp) with `scale` must be what narrow() or widen() say of each element.
  void expect_cast(Dtype to, const Tensor& inp, float scale = 1) {
    Tensor out = box.empty(to, inp.shape);
    Fp8Scale fp8{.scale = scale, .amax = 0};
    if (is_fp8(to)) out.fp8 = &fp8;
    box.kernels().cast(box.ctx(), out, inp);
    float amax = 0;
    for (int64_t i = 0; i < inp.size(); ++i) {
      const auto x = static_cast<float>(at(inp, i));
      amax = larger(amax, std::abs(x));
      if (to == Dtype::F32) {
        const float y = out.data<float>()[i];
        ASSERT_TRUE(std::bit_cast<uint32_t>(y) == std::bit_cast<uint32_t>(x) ||
                    (std::isnan(x) && std::isnan(y)))
            << i << " is " << y << ", not " << x;
      } else {
        const uint32_t want = narrow(format_of(to), x * scale, overflow_of(to));
        ASSERT_TRUE(same_code(format_of(to), code_at(out, i), want))
            << "dtype " << static_cast<int>(to) << ": " << x << " is " << code_at(out, i)
            << ", not " << want << "; element " << i << " of " << inp.size();
      }
    }
    if (is_fp8(to)) {
      EXPECT_TRUE(fp8.amax == amax || (std::isnan(amax) && std::isnan(fp8.amax)));
    }
  }
};

TEST_F(CpuCast, FloatsToEveryFormat) {
  for (const Dtype to : kNarrow) expect_cast(to, of_floats(hard_floats(format_of(to))));
}

TEST_F(CpuCast, FloatsToFp8WithAScale) {
  for (const Dtype to : {Dtype::E4M3, Dtype::E5M2})
    for (const float scale : {0x1p-9F, 0x1p12F})
      expect_cast(to, of_floats(hard_floats(format_of(to))), scale);
}

TEST_F(CpuCast, EveryCodeOf16Bits) {
  for (const Dtype from : {Dtype::BF16, Dtype::F16})
    for (const Dtype to : {Dtype::F32, Dtype::BF16, Dtype::F16, Dtype::E4M3, Dtype::E5M2})
      expect_cast(to, all_codes(from));
}

TEST_F(CpuCast, TailsOfAnyLength) {
  const std::vector<float> cases = hard_floats(kE4M3);
  for (int64_t n = 1; n <= 40; ++n) {
    const auto begin = cases.begin() + 97 * n;
    const Tensor inp = of_floats({begin, begin + n});
    for (const Dtype to : kNarrow) {
      expect_cast(to, inp);
      // What lies behind the last element stays as it is.
      const Tensor room = box.empty(to, {n + 1});
      Tensor out = room.first(n);
      Fp8Scale fp8;
      if (is_fp8(to)) out.fp8 = &fp8;
      set_code(room, n, 0x55);
      box.kernels().cast(box.ctx(), out, inp);
      EXPECT_EQ(code_at(room, n), 0x55U) << n;
    }
    const Tensor half = box.random(Dtype::F16, {n});
    expect_cast(Dtype::F32, half);
    expect_cast(Dtype::BF16, half);
  }
}

TEST_F(CpuCast, AmaxGrowsAndKeepsNaN) {
  Fp8Scale fp8{.scale = 2, .amax = 3};
  Tensor out = box.empty(Dtype::E4M3, {3});
  out.fp8 = &fp8;
  const auto cast = [&](float last) {
    box.kernels().cast(box.ctx(), out, of_floats({1, 2, last}));
  };
  cast(-1);
  EXPECT_EQ(fp8.amax, 3);
  cast(-7);
  EXPECT_EQ(fp8.amax, 7);
  cast(NAN);
  EXPECT_TRUE(std::isnan(fp8.amax));
  cast(-7);
  EXPECT_TRUE(std::isnan(fp8.amax));
}

}  // namespace
}  // namespace ladder::test
