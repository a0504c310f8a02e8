// The rungs of bench/attention_ladder against `ref`: a number of tokens that no tile divides.
#include "bench/attention_ladder/ladder.h"
#include "tests/kernels/cuda/device_under_test.h"
#include "tests/kernels/testing.h"

namespace ladder::test {
namespace {

using AttentionLadder = DeviceTest;

TEST_F(AttentionLadder, EveryRungAsRef) {
  const int64_t B = 2, T = 150, NH = 2, HS = 64;
  Sandbox host{ref_kernels()};
  const Tensor qkv = host.random(Dtype::BF16, {B, T, 3 * NH * HS}, -2, 2);
  const Tensor dout = host.random(Dtype::BF16, {B, T, NH * HS});
  const Tensor out = host.empty(Dtype::BF16, dout.shape), lse = host.empty({B, NH, T});
  const Tensor dqkv = host.empty(Dtype::BF16, qkv.shape);
  host.kernels().attention_forward(host.ctx(), out, lse, qkv);
  host.kernels().attention_backward(host.ctx(), dqkv, dout, qkv, out, lse);
  const Tensor x = dut().upload(qkv), dy = dut().upload(dout);
  for (const bench::Rung& rung : bench::rungs()) {
    const Tensor y = dut().empty(out.dtype, out.shape), l = dut().empty(lse.dtype, lse.shape);
    const Tensor dx = dut().empty(dqkv.dtype, dqkv.shape);
    rung.forward(dut().ctx, y, l, x);
    EXPECT_LT(relative_error(dut().download(y), out), 1e-2) << rung.name;
    EXPECT_LT(relative_error(dut().download(l), lse), 2e-6) << rung.name;
    if (!rung.backward) continue;
    rung.backward(dut().ctx, dx, dy, x, dut().upload(out), dut().upload(lse));
    EXPECT_LT(relative_error(dut().download(dx), dqkv), 1e-2) << rung.name;
  }
}

}  // namespace
}  // namespace ladder::test
