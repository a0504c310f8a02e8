// The operations of the table under test against `ref` in double, on the same numbers. Every
// tolerance is derived from the number of rounded operations behind an element and the size of its
// terms; the table with the longest sums counts.
#pragma once

#include <algorithm>
#include <bit>
#include <functional>
#include <limits>
#include <string>

#include "tests/kernels/testing.h"
#include "tests/kernels/under_test.h"

namespace ladder::test {

/// The largest relative error of one rounding to a dtype.
constexpr double rounding_to(Dtype dtype) {
  switch (dtype) {
    case Dtype::BF16: return 0x1p-8;
    case Dtype::F16: return 0x1p-11;
    default: return 0x1p-24;
  }
}
/// Of FP32, in which all arithmetic is done.
constexpr double kRound = rounding_to(Dtype::F32);
/// Far below any result of the tests of elements.
constexpr double kTiny = 1e-36;
/// Half the distance of subnormal numbers of F16.
constexpr double kTinyF16 = 0x1p-25;

/// Activations can have each of these.
constexpr Dtype kReals[] = {Dtype::F32, Dtype::BF16, Dtype::F16};

/// Roundings on the way of one term through a sum of n terms in `ways` interleaved parts: its
/// part, a tree of the parts, and the operations before and after.
inline double interleaved_roundings(int64_t n, int64_t ways) {
  return static_cast<double>((n + ways - 1) / ways + std::bit_width(static_cast<uint64_t>(ways)) +
                             4);
}

/// What attention computes: out (B,T,NH*HS); lse (B,NH,T); dqkv (B,T,(NH+2*NKV)*HS)
struct Attended {
  Tensor out, lse, dqkv;
};

class VsRef : public DeviceTest {
 protected:
  Ctx& ctx = dut().ctx;
  const Kernels& k = *ctx.kernels;
  /// Where other tables have the bits of `ref`, `cpu` is only near: it fuses products with sums,
  /// and its vectors set the order of the sums in a norm's leaves.
  const bool near_ref = std::string(k.name) == "cpu";
  Sandbox host{ref_kernels()};
  Sandbox exact{ref_kernels(), Dtype::F64};
  const Kernels& ref = exact.kernels();

  /// f of each element, in double; null of null.
  Tensor map(const Tensor& x, const std::function<double(double)>& f) {
    if (!x) return {};
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

  static Tensor up(const Tensor& x) { return x ? dut().upload(x) : Tensor{}; }
  static Tensor share(const Tensor& x) { return dut().share(x); }
  static Tensor down(const Tensor& x) { return dut().download(x); }
  /// On the device, NaN until written.
  static Tensor out(Dtype dtype, Shape shape) { return dut().empty(dtype, shape); }

  /// Calls f for each engine that attends with such heads on a device: that of Hopper, that of all
  /// GPUs, and that for the 99 KiB of shared memory that a block of an RTX 4090 has, of which 1 KiB
  /// is left to static arrays. f is told whether the engine gives the bits of the one before.
  static void with_each_engine(Dtype dtype, int64_t HS, const std::function<void(bool)>& f) {
    f(false);
    const bool tensor_cores = dtype == Dtype::BF16 && (HS == 64 || HS == 128);
    if (tensor_cores && dut().use_hopper(false)) {
      SCOPED_TRACE("not as a Hopper");
      f(false);
    }
    if (HS > 64 && dut().limit_shared(98 << 10)) {
      SCOPED_TRACE("99 KiB of shared memory");
      f(true);
      dut().limit_shared(std::numeric_limits<int64_t>::max());
    }
    dut().use_hopper(true);
  }

  /// Attention of the table, forward and backward, with `ctx`; and that of `ref` in the same dtype.
  static Attended attend(const Ctx& ctx, int64_t NH, const Tensor& qkv, const Tensor& dout) {
    const Tensor x = up(qkv), y = out(dout.dtype, dout.shape), dx = out(qkv.dtype, qkv.shape);
    const Tensor lse = out(Dtype::F32, {dout.dim(0), NH, dout.dim(1)});
    ctx.kernels->attention_forward(ctx, y, lse, x);
    ctx.kernels->attention_backward(ctx, dx, up(dout), x, y, lse);
    return {down(y), down(lse), down(dx)};
  }
  Attended ref_attends(int64_t NH, const Tensor& qkv, const Tensor& dout) {
    const Attended x{host.empty(dout.dtype, dout.shape), host.empty({dout.dim(0), NH, dout.dim(1)}),
                     host.empty(qkv.dtype, qkv.shape)};
    ref.attention_forward(host.ctx(), x.out, x.lse, qkv);
    ref.attention_backward(host.ctx(), x.dqkv, dout, qkv, x.out, x.lse);
    return x;
  }

  /// |got - want| <= bound(i), in FP32, and one rounding to the dtype of `got`, a tensor of the
  /// device. A NaN fails.
  static void expect_near(const std::string& what, const Tensor& device, const Tensor& want,
                          const std::function<double(int64_t)>& bound) {
    const Tensor got = down(device);
    ASSERT_EQ(got.size(), want.size()) << what;
    const double relative = got.dtype == Dtype::F32 ? 0 : rounding_to(got.dtype);
    for (int64_t i = 0; i < got.size(); ++i) {
      const double rounded = relative * (std::abs(at(want, i)) + bound(i));
      const double allowed = bound(i) + rounded + (got.dtype == Dtype::F16 ? kTinyF16 : 0);
      const double error = std::abs(at(got, i) - at(want, i));
      ASSERT_TRUE(error <= allowed)
          << what << " " << to_string(got.shape) << "[" << i << "] is " << at(got, i) << ", not "
          << at(want, i) << "; allowed " << allowed << "; dtype " << static_cast<int>(got.dtype);
    }
  }
};

}  // namespace ladder::test
