// What tensor parallelism cuts beside channels: rows of the embedding.
#include <array>
#include <functional>

#include "tests/kernels/same_bits.h"

namespace ladder::test {
namespace {

class SameBitsRows : public SameBits {
 protected:
  /// Tokens as rank `rank` of tp knows them, which has rows [rank V / tp, (rank + 1) V / tp).
  Tensor tokens_of(const Tensor& tokens, int64_t rank, int64_t tp, int64_t V) {
    const Tensor own = box.copy(tokens);
    for (int64_t i = 0; i < own.size(); ++i) {
      int32_t& token = own.data<int32_t>()[i];
      token = token / (V / tp) == rank ? static_cast<int32_t>(token % (V / tp)) : kElsewhere;
    }
    return own;
  }
};

TEST_P(SameBitsRows, RowsOfTheEmbeddingCutOverRanks) {
  for (const auto& [B, T, C, V] : {std::array{3, 5, 37, 24}, std::array{8, 16, 64, 40}}) {
    const Tensor tokens = box.tokens({B, T}, V - 3), dout = spread(box, {B, T, C});
    const Tensor wte = box.random({V, C}), wpe = box.random({T + 1, C});
    const Tensor out = box.empty({B, T, C});
    const Tensor before = box.random(sums, {V, C}), before_p = box.random(sums, {T + 1, C});
    k.embed_forward(ctx, out, tokens, wte, wpe);
    use_threads();
    for (const Into into : {Into::Write, Into::Add})
      for (const int tp : {1, 2, 4, 8}) {
        const Tensor dwte = box.copy(before), dwpe = box.copy(before_p), joined = box.copy(before);
        k.embed_backward(ctx, dwte, dwpe, dout, tokens, into);
        std::vector<Tensor> parts;
        for (int64_t rank = 0; rank < tp; ++rank) {
          const int64_t begin = rank * V / tp, count = V / tp;
          const Tensor own = tokens_of(tokens, rank, tp, V), positions = box.copy(before_p);
          parts.push_back(box.empty({B, T, C}));
          k.embed_forward(ctx, parts.back(), own, wte.slice(begin, count), wpe);
          k.embed_backward(ctx, joined.slice(begin, count), positions, dout, own, into);
          EXPECT_TRUE(same_bits(positions, dwpe)) << "tp " << tp << " rank " << rank;
        }
        EXPECT_TRUE(same_bits(join(parts), out)) << "V " << V << " tp " << tp;
        EXPECT_TRUE(same_bits(joined, dwte)) << "V " << V << " tp " << tp;
      }
  }
}

INSTANTIATE_TEST_SUITE_P(Tables, SameBitsRows, ::testing::ValuesIn(tables_of_all_dtypes()),
                         table_name);

}  // namespace
}  // namespace ladder::test
