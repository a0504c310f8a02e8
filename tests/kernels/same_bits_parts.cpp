// Parts of a tensor: blocks of 8-bit states, columns of norms, and channels and rows of the
// embedding as tensor parallelism cuts them. Operations on single elements are in
// operations/elementwise.cpp.
#include <array>

#include "kernels/tree.h"
#include "tests/kernels/same_bits.h"

namespace ladder::test {
namespace {

class SameBitsParts : public SameBits {};

TEST_P(SameBitsParts, ShardsOfWholeBlocksGiveTheSame8BitStates) {
  const int64_t blocks = 66, n = blocks * kQuantBlock;  // 64 of them are worth several threads
  const Tensor grad = box.random({n}), param = box.random({n});
  std::vector<std::vector<Tensor>> states;
  for (const int64_t cut : {int64_t{0}, kQuantBlock, 2 * kQuantBlock}) {
    const Tensor w = box.copy(param), m = box.zeros(Dtype::U8, {n}), v = box.zeros(Dtype::U8, {n});
    const Tensor ms = box.zeros(Dtype::F32, {blocks}), vs = box.zeros(Dtype::F32, {blocks});
    const auto run = [&](int64_t begin, int64_t count) {
      const int64_t first = begin / kQuantBlock, some = count / kQuantBlock;
      k.adamw8bit_update(ctx, w.slice(begin, count), m.slice(begin, count), ms.slice(first, some),
                         v.slice(begin, count), vs.slice(first, some), grad.slice(begin, count),
                         adam_step(1, true));
    };
    for (int repeat = 0; repeat < 3; ++repeat) {
      if (cut > 0) run(0, cut);
      run(cut, n - cut);
    }
    states.push_back({w, m, ms, v, vs});
    use_threads();
  }
  for (size_t s = 1; s < states.size(); ++s)
    for (size_t i = 0; i < 5; ++i) EXPECT_TRUE(same_bits(states[s][i], states[0][i])) << s << i;
}

TEST_P(SameBitsParts, ChannelsCutOverRanksGiveTheSameProduct) {
  for (const int64_t K : {8, 40, 64}) {
    const int64_t rows = 13, N = 35;
    const Tensor inp = box.random({rows, K}), w = box.random({N, K});
    const Tensor dout = box.random({rows, K}), wt = box.random({K, N});
    const Tensor forward = box.empty({rows, N}), backward = box.empty({rows, N});
    k.matmul_forward(ctx, forward, inp, w, Tensor{}, kLeaves);
    k.matmul_backward_input(ctx, backward, dout, wt, kLeaves);
    use_threads();
    for (const int tp : {2, 4, 8}) {
      std::vector<Tensor> out, dinp;
      for (int64_t rank = 0; rank < tp; ++rank) {
        const int64_t begin = rank * K / tp, count = K / tp;
        out.push_back(box.empty({rows, N}));
        k.matmul_forward(ctx, out.back(), columns(inp, begin, count), columns(w, begin, count),
                         Tensor{}, kLeaves / tp);
        dinp.push_back(box.empty({rows, N}));
        k.matmul_backward_input(ctx, dinp.back(), columns(dout, begin, count),
                                wt.slice(begin, count), kLeaves / tp);
      }
      EXPECT_TRUE(same_bits(join(out), forward)) << "K " << K << " tp " << tp;
      EXPECT_TRUE(same_bits(join(dinp), backward)) << "K " << K << " tp " << tp;
    }
  }
}

TEST_P(SameBitsParts, NegativeControlOneLeafDiffers) {
  const Tensor inp = box.random({13, 64}), w = box.random({35, 64});
  const Tensor one = box.empty({13, 35}), eight = box.empty({13, 35});
  k.matmul_forward(ctx, one, inp, w, Tensor{}, 1);
  k.matmul_forward(ctx, eight, inp, w, Tensor{}, kLeaves);
  EXPECT_FALSE(same_bits(one, eight));
  EXPECT_LT(relative_error(one, eight), 1e-6);
}

TEST_P(SameBitsParts, SquaredNormsAddInAnyOrder) {
  const int64_t R = 3, N = 203;
  const Tensor x = box.random({R, N}, -100, 100), whole = box.zeros(Dtype::I64, {R, kLimbs});
  k.squared_norm(ctx, whole, x);
  use_threads();
  const Tensor parts = box.zeros(Dtype::I64, {R, kLimbs});
  const std::array<int64_t, 5> cuts = {0, 16, 96, 192, N};
  for (size_t i = 4; i-- > 0;)
    k.squared_norm(ctx, parts, columns(x, cuts[i], cuts[i + 1] - cuts[i]));
  EXPECT_TRUE(same_bits(parts, whole));
}

INSTANTIATE_TEST_SUITE_P(Tables, SameBitsParts, ::testing::ValuesIn(tables()), table_name);

class SameBitsRows : public SameBits {
 protected:
  /// Tokens as one rank of tp sees them; it has rows [rank V / tp, (rank + 1) V / tp).
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
