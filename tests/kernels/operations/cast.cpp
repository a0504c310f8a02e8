// `cast` against kernels/narrow.h, a value at a time: same bits.
#include <algorithm>

#include "tests/kernels/narrow_cases.h"
#include "tests/kernels/operations/vs_ref.h"

namespace ladder::test {
namespace {

constexpr Dtype kNarrow[] = {Dtype::BF16, Dtype::F16, Dtype::E4M3, Dtype::E5M2};

class Cast : public VsRef {
 protected:
  Tensor of_floats(const std::vector<float>& values) {
    const Tensor x = host.empty({static_cast<int64_t>(values.size())});
    std::copy(values.begin(), values.end(), x.data<float>());
    return x;
  }
  Tensor all_codes(Dtype dtype) {
    const Tensor x = host.empty(dtype, {int64_t{1} << format_of(dtype).bits()});
    for (int64_t i = 0; i < x.size(); ++i) set_code(x, i, static_cast<uint32_t>(i));
    return x;
  }
  /// On the device, every byte 0x55; with a scale, if it is FP8.
  Tensor room(Dtype dtype, int64_t n, Fp8Scale& fp8) {
    Tensor x = host.empty(dtype, {n});
    std::memset(x.ptr, 0x55, static_cast<size_t>(x.bytes()));
    if (is_fp8(dtype)) x.fp8 = &fp8;
    return up(x);
  }

  /// cast(inp) with `scale` must be what narrow() or widen() say of each element.
  void expect_cast(Dtype to, const Tensor& inp, float scale = 1) {
    Fp8Scale fp8{.scale = scale, .amax = 0};
    const Tensor device = room(to, inp.size(), fp8);
    k.cast(ctx, device, up(inp));
    const Tensor got = down(device);
    float amax = 0;
    for (int64_t i = 0; i < inp.size(); ++i) {
      const auto x = static_cast<float>(at(inp, i));
      amax = larger(amax, std::abs(x));
      if (to == Dtype::F32) {
        const float y = got.data<float>()[i];
        ASSERT_TRUE(std::bit_cast<uint32_t>(y) == std::bit_cast<uint32_t>(x) ||
                    (std::isnan(x) && std::isnan(y)))
            << i << " is " << y << ", not " << x;
      } else {
        const uint32_t want = narrow(format_of(to), x * scale, overflow_of(to));
        ASSERT_TRUE(same_code(format_of(to), code_at(got, i), want))
            << "dtype " << static_cast<int>(to) << ": " << x << " is " << code_at(got, i)
            << ", not " << want << "; element " << i << " of " << inp.size();
      }
    }
    if (is_fp8(to)) {
      EXPECT_TRUE(got.fp8->amax == amax || (std::isnan(amax) && std::isnan(got.fp8->amax)))
          << got.fp8->amax << ", not " << amax;
    }
  }
};

TEST_F(Cast, FloatsToEveryFormat) {
  for (const Dtype to : kNarrow) expect_cast(to, of_floats(hard_floats(format_of(to))));
}

TEST_F(Cast, FloatsToFp8WithAScale) {
  for (const Dtype to : {Dtype::E4M3, Dtype::E5M2})
    for (const float scale : {0x1p-9F, 0x1p12F})
      expect_cast(to, of_floats(hard_floats(format_of(to))), scale);
}

TEST_F(Cast, EveryCodeOf16Bits) {
  for (const Dtype from : {Dtype::BF16, Dtype::F16})
    for (const Dtype to : {Dtype::F32, Dtype::BF16, Dtype::F16, Dtype::E4M3, Dtype::E5M2})
      expect_cast(to, all_codes(from));
}

TEST_F(Cast, AmaxOfMoreThanOneBlock) {
  for (const double last : {2.0, 100.0}) {
    const Tensor inp = host.random({3 * 8 * 256 + 5}, -9, 9);
    set(inp, inp.size() - 1, last);
    expect_cast(Dtype::E4M3, inp);
  }
}

// Less than a tile, whole tiles, parts of tiles, and extents that no word holds.
TEST_F(Cast, CodesAndTheirTranspose) {
  if (!k.transposes_fp8) GTEST_SKIP() << "this table writes no transposed codes";
  for (const Shape& shape : {Shape{8, 12}, {256, 128}, {132, 3, 300}, {2, 7, 5}, {3, 5, 8}})
    for (const Dtype from : {Dtype::F32, Dtype::BF16}) {
      const Tensor inp = host.random(from, shape, -9, 9);
      set(inp, inp.size() - 1, -20);
      Fp8Scale once{.scale = 4}, twice = once;
      const Tensor want = room(Dtype::E5M2, inp.size(), once);
      Tensor got = room(Dtype::E5M2, inp.size(), twice).view(shape);
      const Tensor other = room(Dtype::E5M2, inp.size(), twice);
      got.transposed = other.ptr;
      k.cast(ctx, want.view(shape), up(inp));
      k.cast(ctx, got, up(inp));
      const Tensor codes = down(got), transposed = down(other);
      EXPECT_TRUE(same_bits(codes.view({inp.size()}), down(want)));
      EXPECT_EQ(codes.fp8->amax, 20);
      const int64_t rows = inp.rows(), columns = inp.dim(-1);
      for (int64_t i = 0; i < inp.size(); ++i)
        ASSERT_EQ(code_at(transposed, i % columns * rows + i / columns), code_at(codes, i))
            << to_string(shape) << i;
    }
}

TEST_F(Cast, TailsOfAnyLengthAndPlace) {
  const std::vector<float> cases = hard_floats(kE4M3);
  for (int64_t n = 1; n <= 20; ++n)
    for (const int64_t begin : {0, 1})  // the second is not aligned to 16 bytes
      for (const Dtype to : kNarrow) {
        const Tensor inp = of_floats({cases.begin() + 97 * n, cases.begin() + 97 * n + n + begin});
        Fp8Scale fp8;
        const Tensor device = room(to, begin + n + 1, fp8);
        k.cast(ctx, device.slice(begin, n), up(inp).slice(begin, n));
        const Tensor got = down(device);
        for (int64_t i = begin; i < begin + n; ++i)
          EXPECT_TRUE(same_code(format_of(to), code_at(got, i),
                                narrow(format_of(to), inp.data<float>()[i], overflow_of(to))));
        // What lies before and behind stays as it is.
        const uint32_t untouched = size_of(to) == 2 ? 0x5555 : 0x55;
        EXPECT_EQ(code_at(got, begin + n), untouched);
        if (begin > 0) {
          EXPECT_EQ(code_at(got, 0), untouched);
        }
      }
}

TEST_F(Cast, AmaxGrowsAndKeepsNaN) {
  Fp8Scale fp8{.scale = 2, .amax = 3};
  const Tensor device = room(Dtype::E4M3, 3, fp8);
  const auto amax_after = [&](float last) {
    k.cast(ctx, device, up(of_floats({1, 2, last})));
    ctx.synchronize();
    return device.fp8->amax;
  };
  EXPECT_EQ(amax_after(-1), 3);
  EXPECT_EQ(amax_after(-7), 7);
  EXPECT_TRUE(std::isnan(amax_after(NAN)));
  EXPECT_TRUE(std::isnan(amax_after(-7)));
}

}  // namespace
}  // namespace ladder::test
