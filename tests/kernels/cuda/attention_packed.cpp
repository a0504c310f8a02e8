// Attention of rows that hold documents: each has the bits that it has alone.
#include <algorithm>
#include <vector>

#include "kernels/packed_rows.h"
#include "tests/kernels/cuda/device_under_test.h"
#include "tests/kernels/testing.h"

namespace ladder::test {
namespace {

class CudaPackedRows : public DeviceTest {
 protected:
  struct Case {
    Dtype dtype;
    int64_t NH, NKV, HS;
  };
  /// Where documents begin in two rows of 200 tokens: shorter and longer than a tile, of one token,
  /// and some that would share a tile.
  const std::vector<int32_t> begins_ = {0, 1, 70, 198, 200, 205, 400};
  static constexpr int64_t kLongest = 195;

  Sandbox host{ref_kernels()};

  struct Results {
    Tensor out, lse, dqkv;
  };
  /// On the device; qkv, dout on the host.
  static Results run(const Ctx& ctx, int64_t NH, const Tensor& qkv, const Tensor& dout) {
    const Tensor x = dut().upload(qkv), dy = dut().upload(dout);
    const Results got{dut().empty(dout.dtype, dout.shape),
                      dut().empty(Dtype::F32, {dout.dim(0), NH, dout.dim(1)}),
                      dut().empty(qkv.dtype, qkv.shape)};
    dev::attention_forward(ctx, got.out, got.lse, x);
    dev::attention_backward(ctx, got.dqkv, dy, x, got.out, got.lse);
    return {dut().download(got.out), dut().download(got.lse), dut().download(got.dqkv)};
  }

  Ctx packed() {
    const Tensor begins = host.empty(Dtype::I32, {static_cast<int64_t>(begins_.size())});
    std::copy(begins_.begin(), begins_.end(), begins.data<int32_t>());
    Ctx ctx = dut().ctx;
    ctx.packed = {dut().share(begins), kLongest};
    return ctx;
  }
};

TEST_F(CudaPackedRows, HaveTheBitsThatTheyHaveAlone) {
  for (const auto& [dtype, NH, NKV, HS] : {Case{Dtype::F32, 2, 1, 8},
                                           {Dtype::BF16, 2, 2, 64},
                                           {Dtype::BF16, 2, 1, 64},
                                           {Dtype::F16, 2, 1, 32}}) {
    const Tensor qkv = host.random(dtype, {2, 200, (NH + 2 * NKV) * HS}, -2, 2);
    const Tensor dout = host.random(dtype, {2, 200, NH * HS});
    const Results all = run(packed(), NH, qkv, dout);
    for (size_t d = 0; d + 1 < begins_.size(); ++d) {
      const PackedDocument one{{begins_[d], begins_[d + 1]}};
      const Results alone = run(dut().ctx, NH, one.of(qkv), one.of(dout));
      EXPECT_TRUE(same_bits(one.of(all.out), alone.out)) << "document " << d << ", HS " << HS;
      EXPECT_TRUE(same_bits(one.statistics(all.lse), alone.lse)) << "document " << d;
      EXPECT_TRUE(same_bits(one.of(all.dqkv), alone.dqkv)) << "document " << d << ", HS " << HS;
    }
  }
}

}  // namespace
}  // namespace ladder::test
