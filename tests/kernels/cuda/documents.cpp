// Rows that hold documents: attention has the bits of each alone; the other operations have the
// bits that they have where each row holds one document, and are near `ref`.
#include "tests/kernels/documents.h"

#include <cmath>
#include <stdexcept>

#include "tests/kernels/operations/vs_ref.h"

namespace ladder::test {
namespace {

class CudaDocuments : public VsRef {
 protected:
  LaidDocuments laid{host};

  Ctx with(const Placement& place) {
    Ctx other = ctx;
    other.documents = laid.borders(place);
    other.documents.borders = up(other.documents.borders);
    other.documents.position = up(other.documents.position);
    return other;
  }
  /// What a call writes, on the device.
  static std::vector<Tensor> run(Call call, const std::vector<Tensor>& like, const Ctx& ctx,
                                 int64_t B) {
    for (Operand& o : call.in)
      if (o.x) o.x = up(o.x);
    std::vector<Tensor> to;
    for (const Tensor& x : like) to.push_back(out(x.dtype, x.shape));
    call.on(*ctx.kernels, ctx, to, 0, B);
    for (Tensor& x : to) x = down(x);
    return to;
  }
};

/// Shorter and longer than a tile, of one token, some that share a tile.
TEST_F(CudaDocuments, AttentionHasTheBitsOfEachAlone) {
  struct Case {
    Dtype dtype;
    int64_t NH, NKV, HS;
  };
  const Placement place = LaidDocuments::packed();
  Ctx with_documents = with(place);
  for (const auto& [dtype, NH, NKV, HS] : {Case{Dtype::F32, 2, 1, 8},
                                           {Dtype::BF16, 2, 2, 64},
                                           {Dtype::BF16, 2, 1, 64},
                                           {Dtype::F16, 2, 1, 32},
                                           {Dtype::F32, 2, 1, 80},
                                           {Dtype::BF16, 2, 1, 128}}) {
    // Backward keeps 8 bytes a token and head; each document is padded by up to 128 tokens. There
    // is room for the four documents of one bundle, so backward takes three parts.
    const int64_t tokens = place.B * LaidDocuments::T + 128 * (4 + 1);
    with_documents.scratch.shape.dims[1] = round_up(8 * NH * tokens, int64_t{256}) + 256;
    const Tensor qkv = host.random(dtype, {place.B, LaidDocuments::T, (NH + 2 * NKV) * HS}, -2, 2);
    const Tensor dout = host.random(dtype, {place.B, LaidDocuments::T, NH * HS});
    with_each_engine(dtype, HS, [&, NH = NH, HS = HS](bool) {
      const Attended all = attend(with_documents, NH, qkv, dout);
      for (const Range& rows : place.documents) {
        if (rows.size() == 0) continue;
        const DocumentRows one{rows};
        const Attended alone = attend(ctx, NH, one.of(qkv), one.of(dout));
        EXPECT_TRUE(same_bits(one.of(all.out), alone.out)) << "row " << rows.begin << ", HS " << HS;
        EXPECT_TRUE(same_bits(one.statistics(all.lse), alone.lse)) << "row " << rows.begin;
        EXPECT_TRUE(same_bits(one.of(all.dqkv), alone.dqkv)) << "row " << rows.begin;
      }
      for (const Tensor& x : {all.out, all.lse, all.dqkv})
        for (int64_t i = 0; i < x.size(); ++i) ASSERT_TRUE(std::isfinite(at(x, i)));
    });
  }
}

/// Documents of few tokens have so many leaves that columns are summed in parts.
TEST_F(CudaDocuments, LittleScratchGivesTheBitsOfMuch) {
  const Call call = [&] {
    for (const Call& one : calls(host, {.B = 12, .T = 3, .C = 300}, Dtype::F32))
      if (one.name == std::string_view("norm_backward_weight")) return one;
    throw std::logic_error("no such call");
  }();
  const std::vector<Tensor> like = call.outputs(host, Dtype::F32);
  const auto want = run(call, like, ctx, 12);
  for (const int64_t scratch : {160 << 10, 60 << 10}) {  // 96 leaves of two sums: 776 a column
    Ctx little = ctx;
    little.scratch.shape.dims[1] = scratch;
    const auto got = run(call, like, little, 12);
    for (size_t i = 0; i < want.size(); ++i) EXPECT_TRUE(same_bits(got[i], want[i])) << i;
  }
}

TEST_F(CudaDocuments, OperationsAreNearThoseOfRef) {
  const Placement places[] = {LaidDocuments::packed(), LaidDocuments::unpacked()};
  for (const Call& source :
       calls_of_documents(host, {.B = LaidDocuments::D, .T = LaidDocuments::T}, Dtype::F32)) {
    if (!feels_documents(source)) continue;
    const bool library = std::string_view(source.name).starts_with("matmul");
    const double padding = source.sums() && !library ? NAN : 0;
    std::vector<std::vector<Tensor>> sums;
    for (const Placement& place : places) {
      const Call call = laid.laid(source, place, padding);
      Ctx on_host = host.ctx();
      on_host.documents = laid.borders(place);
      const std::vector<Tensor> want = laid.outputs(source, place, Dtype::F32);
      call.on(ref_kernels(), on_host, want, 0, place.B);
      sums.push_back(run(call, want, with(place), place.B));
      for (size_t i = 0; i < want.size(); ++i)
        EXPECT_LT(relative_error(sums.back()[i], want[i]), 1e-5) << source.name << ", output " << i;
    }
    for (size_t i = 0; source.sums() && !library && i < sums[0].size(); ++i)
      EXPECT_TRUE(same_bits(sums[0][i], sums[1][i])) << source.name << ", output " << i;
  }
}

}  // namespace
}  // namespace ladder::test
