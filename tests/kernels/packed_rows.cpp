// Attention of rows that hold documents, in `ref` and `cpu`: each has the bits that it has alone.
#include "kernels/packed_rows.h"

#include <algorithm>
#include <vector>

#include "tests/kernels/testing.h"

namespace ladder::test {
namespace {

class PackedRowsTest : public ::testing::TestWithParam<const Kernels*> {
 protected:
  static constexpr int64_t B = 2, T = 150, NH = 4, NKV = 2, HS = 8;
  /// Documents of B rows: of one token, of one chunk, of more.
  const std::vector<int32_t> begins_ = {0, 1, 20, T, B* T};
  Sandbox box{*GetParam()};
  const Kernels& k = *GetParam();

  struct Results {
    Tensor out, lse, dqkv;
  };
  Results run(const Ctx& ctx, const Tensor& qkv, const Tensor& dout) {
    const Results got{box.empty(dout.dtype, dout.shape),
                      box.empty(Dtype::F32, {dout.dim(0), NH, dout.dim(1)}),
                      box.empty(qkv.dtype, qkv.shape)};
    k.attention_forward(ctx, got.out, got.lse, qkv);
    k.attention_backward(ctx, got.dqkv, dout, qkv, got.out, got.lse);
    return got;
  }
  /// The box's, with documents that begin there.
  Ctx packed(const std::vector<int32_t>& begins) {
    const Tensor begin = box.empty(Dtype::I32, {static_cast<int64_t>(begins.size())});
    std::copy(begins.begin(), begins.end(), begin.data<int32_t>());
    Ctx ctx = box.ctx();
    ctx.packed = {begin, B * T};
    return ctx;
  }
};

TEST_P(PackedRowsTest, DocumentsHaveTheBitsThatTheyHaveAlone) {
  for (const Dtype dtype : {Dtype::F32, Dtype::BF16}) {
    const Tensor qkv = box.random(dtype, {B, T, (NH + 2 * NKV) * HS}, -2, 2);
    const Tensor dout = box.random(dtype, {B, T, NH * HS});
    const Results all = run(packed(begins_), qkv, dout);
    for (size_t d = 0; d + 1 < begins_.size(); ++d) {
      const PackedDocument one{{begins_[d], begins_[d + 1]}};
      const Results alone = run(box.ctx(), one.of(qkv), one.of(dout));
      EXPECT_TRUE(same_bits(one.of(all.out), alone.out)) << d;
      EXPECT_TRUE(same_bits(one.statistics(all.lse), alone.lse)) << d;
      EXPECT_TRUE(same_bits(one.of(all.dqkv), alone.dqkv)) << d;
    }
  }
}

TEST_P(PackedRowsTest, OneDocumentARowIsTheRow) {
  const Tensor qkv = box.random(Dtype::F32, {B, T, (NH + 2 * NKV) * HS}, -2, 2);
  const Tensor dout = box.random(Dtype::F32, {B, T, NH * HS});
  const Results plain = run(box.ctx(), qkv, dout), all = run(packed({0, T, B * T}), qkv, dout);
  EXPECT_TRUE(same_bits(all.out, plain.out));
  EXPECT_TRUE(same_bits(all.lse, plain.lse));
  EXPECT_TRUE(same_bits(all.dqkv, plain.dqkv));
}

TEST_P(PackedRowsTest, DocumentsAreAllRows) {
  const Tensor qkv = box.random(Dtype::F32, {B, T, (NH + 2 * NKV) * HS});
  const Tensor dout = box.random(Dtype::F32, {B, T, NH * HS});
  for (const auto& begins :
       std::vector<std::vector<int32_t>>{{0, T}, {1, B * T}, {0, 90, 80, B * T}})
    EXPECT_THROW(run(packed(begins), qkv, dout), CheckError);
}

INSTANTIATE_TEST_SUITE_P(Tables, PackedRowsTest, ::testing::Values(&ref_kernels(), &cpu_kernels()),
                         [](const auto& table) { return std::string(table.param->name); });

}  // namespace
}  // namespace ladder::test
