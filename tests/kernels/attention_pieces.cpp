// Attention of one sequence on several ranks: its pieces, joined, have the bits of the whole.
//
// A sequence has 2 cp chunks. Rank r holds chunks r and 2 cp - 1 - r (zig-zag), and gets the keys
// of other ranks chunk by chunk. The sums of the ranks are joined as a tree by rank.
#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "kernels/attention_rows.h"
#include "tests/kernels/same_bits.h"

namespace ladder::test {
namespace {

/// Query heads, key-value heads, channels of each.
struct Heads {
  int64_t NH, NKV, HS;
};

/// What may be done wrong.
enum class Fault : uint8_t {
  None,
  OrderOfArrival,  ///< the softmaxes of own chunks come first, then those of a ring's neighbors
  Swapped,         ///< a tree over chunks of keys, but two of them have changed places
  Chain,           ///< chunks of keys one after another, not as a tree
  Unfolded,        ///< rank r has neighboring tokens: its leaves are not folded
  NotOffset,       ///< all queries have the positions of rank 0
  ChunkLost,
  ChunkTwice,
};

struct Softmax {
  Tensor o, m, l;
};

/// out (1,T,NH*HS); lse (1,NH,T); dqkv (1,T,(NH+2*NKV)*HS)
struct Results {
  Tensor out, lse, dqkv;
};

/// The tokens of a rank: two stretches of the sequence.
using Stretches = std::vector<Range>;

class AttentionPieces : public SameBits {
 protected:
  int64_t cp = 1;
  int64_t chunks = 2;  ///< of keys, that travel one by one
  Fault fault = Fault::None;

  Results whole(const Tensor& qkv, const Tensor& dout, const Heads& s) {
    const Results r{box.empty(dout.shape), box.empty(sums, {1, s.NH, dout.dim(1)}),
                    box.empty(qkv.shape)};
    k.attention_forward(ctx, r.out, r.lse, qkv);
    k.attention_backward(ctx, r.dqkv, dout, qkv, r.out, r.lse);
    return r;
  }
  Results by_ranks(const Tensor& qkv, const Tensor& dout, const Heads& s);

  Stretches tokens_of_rank(int64_t rank, int64_t T) const {
    if (fault == Fault::Unfolded) return {leaf(2 * rank, 2 * cp, T), leaf(2 * rank + 1, 2 * cp, T)};
    const auto [early, late] = fold(rank, cp, T);
    return {early, late};
  }
  Tensor gathered(const Tensor& all, const Stretches& tokens) {
    return tokens_of(all, 0, all.dim(0), tokens);
  }
  /// Puts local (..,T/cp,N) where gathered() took it from. all (..,T,N)
  static void scatter(const Tensor& all, const Tensor& local, const Stretches& tokens) {
    const int64_t N = all.dim(2), T = all.dim(1);
    for (int64_t i = 0; i < all.dim(0); ++i) {
      int64_t row = i * local.dim(1);
      for (const Range& range : tokens)
        for (int64_t t = range.begin; t < range.end; ++t, ++row)
          for (int64_t c = 0; c < N; ++c) set(all, (i * T + t) * N + c, at(local, row * N + c));
    }
  }
  /// Columns of each group out of qkv.
  Tensor taken(const Tensor& qkv, const Heads& s, int64_t from, int64_t count) {
    const int64_t tokens = qkv.dim(1), N = qkv.dim(2);
    const Tensor part = box.empty({1, tokens, s.NKV * count});
    k.copy_columns(ctx, part.view({tokens, s.NKV, count}), 0, qkv.view({tokens, s.NKV, N / s.NKV}),
                   from, count);
    return part;
  }

  Softmax sum_of(const Softmax& a, const Softmax& b) {
    const Softmax sum{box.copy(a.o), box.copy(a.m), box.copy(a.l)};
    k.attention_merge(ctx, sum.o, sum.m, sum.l, b.o, b.m, b.l);
    return sum;
  }
  static void expect_same(const Softmax& got, const Softmax& want) {
    EXPECT_TRUE(same_bits(got.o, want.o));
    EXPECT_TRUE(same_bits(got.m, want.m));
    EXPECT_TRUE(same_bits(got.l, want.l));
  }

  /// The order in which a rank takes the softmaxes of chunks.
  std::vector<int64_t> chunks_for(int64_t rank) const {
    std::vector<int64_t> order;
    for (int64_t i = 0; i < chunks; ++i) {
      const int64_t source = (rank - i / 2 + cp) % cp;
      const int64_t arrives = i % 2 == 0 ? source : chunks - 1 - source;
      order.push_back(fault == Fault::OrderOfArrival ? arrives : i);
    }
    if (fault == Fault::Swapped) std::swap(order[1], order[2]);
    if (fault == Fault::ChunkLost) order.erase(order.begin());
    if (fault == Fault::ChunkTwice) order.push_back(0);
    return order;
  }
  Softmax merged(std::vector<Softmax> parts) {
    const auto into = [&](const Softmax& a, const Softmax& b) {
      k.attention_merge(ctx, a.o, a.m, a.l, b.o, b.m, b.l);
    };
    if (fault == Fault::Chain || fault == Fault::OrderOfArrival)
      for (size_t i = 1; i < parts.size(); ++i) into(parts[0], parts[i]);
    else
      for (size_t step = 1; step < parts.size(); step *= 2)
        for (size_t i = 0; i + step < parts.size(); i += 2 * step) into(parts[i], parts[i + step]);
    return parts[0];
  }
};

/// As cp ranks do it.
Results AttentionPieces::by_ranks(const Tensor& qkv, const Tensor& dout, const Heads& s) {
  const int64_t T = dout.dim(1), r = s.NH / s.NKV;
  chunks = std::min(2 * cp, key_chunks(T));
  const Results all{box.empty(dout.shape), box.empty(sums, {1, s.NH, T}), box.empty(qkv.shape)};
  std::vector<std::vector<Tensor>> dkv(static_cast<size_t>(chunks));  // of each chunk: by rank
  std::vector<Tensor> kv;
  for (int64_t i = 0; i < chunks; ++i)
    kv.push_back(taken(gathered(qkv, {leaf(i, chunks, T)}), s, r * s.HS, 2 * s.HS));
  for (int64_t rank = 0; rank < cp; ++rank) {
    const Stretches tokens = tokens_of_rank(rank, T);
    const Tensor q = taken(gathered(qkv, tokens), s, 0, r * s.HS), dy = gathered(dout, tokens);
    const Stretches told = fault == Fault::NotOffset ? tokens_of_rank(0, T) : tokens;
    const auto place = [&](int64_t i) {
      return AttentionPositions{T, {told[0].begin, told[1].begin}, leaf(i, chunks, T).begin};
    };
    std::vector<Softmax> parts;
    for (const int64_t i : chunks_for(rank)) {
      const Shape statistic{1, s.NH, q.dim(1)};
      const Softmax part{box.empty(sums, q.shape), box.empty(sums, statistic),
                         box.empty(sums, statistic)};
      k.attention_piece_forward(ctx, part.o, part.m, part.l, q, kv[static_cast<size_t>(i)],
                                place(i));
      parts.push_back(part);
    }
    const Softmax sum = merged(parts);
    const Tensor out = box.empty(q.shape), lse = box.empty(sums, sum.m.shape);
    k.attention_finish(ctx, out, lse, sum.o, sum.m, sum.l);

    std::vector<Tensor> dq;
    for (int64_t i = 0; i < chunks; ++i) {
      const Tensor& keys = kv[static_cast<size_t>(i)];
      dq.push_back(box.empty(sums, q.shape));
      dkv[static_cast<size_t>(i)].push_back(box.empty(sums, keys.shape));
      k.attention_piece_backward(ctx, dq.back(), dkv[static_cast<size_t>(i)].back(), dy, q, keys,
                                 out, lse, place(i));
    }
    const Tensor dx = gathered(all.dqkv, tokens);
    k.copy_columns(ctx, dx.view({q.dim(1), s.NKV, (r + 2) * s.HS}), 0,
                   join(dq).view({q.dim(1), s.NKV, r * s.HS}), 0, r * s.HS);
    scatter(all.out, out, tokens);
    scatter(all.dqkv, dx, tokens);
    scatter(all.lse.view({s.NH, T, 1}), lse.view({s.NH, q.dim(1), 1}), tokens);
  }
  for (int64_t i = 0; i < chunks; ++i) {
    const Range range = leaf(i, chunks, T);
    const Tensor dx = gathered(all.dqkv, {range});
    k.copy_columns(ctx, dx.view({range.size(), s.NKV, (r + 2) * s.HS}), r * s.HS,
                   join(dkv[static_cast<size_t>(i)]).view({range.size(), s.NKV, 2 * s.HS}), 0,
                   2 * s.HS);
    scatter(all.dqkv, dx, {range});
  }
  return all;
}

TEST_P(AttentionPieces, RanksThatShareASequenceHaveTheBitsOfOne) {
  use_threads();
  for (const int64_t T : {64, 128, 192, 256, 512, 1024}) {
    if (GetParam().dtype != Dtype::F32 && T > 256) break;
    for (const Heads& s : {Heads{2, 2, 5}, Heads{3, 1, 4}}) {
      const Tensor qkv = box.random({1, T, (s.NH + 2 * s.NKV) * s.HS}, -2, 2);
      const Tensor dout = box.random({1, T, s.NH * s.HS});
      const Results want = whole(qkv, dout, s);
      for (cp = 1; cp <= std::min<int64_t>(8, query_leaves(T)); cp *= 2) {
        const Results got = by_ranks(qkv, dout, s);
        EXPECT_TRUE(same_bits(got.out, want.out)) << T << " tokens, cp " << cp;
        EXPECT_TRUE(same_bits(got.lse, want.lse)) << T << " tokens, cp " << cp;
        EXPECT_TRUE(same_bits(got.dqkv, want.dqkv)) << T << " tokens, cp " << cp;
      }
    }
  }
}

/// Negative controls. (Narrow results round most of it away.)
TEST_P(AttentionPieces, WhatIsDoneWrongIsSeen) {
  if (GetParam().dtype != Dtype::F32) return;
  use_threads();
  const Heads s{2, 1, 8};
  const int64_t T = 512;
  const Tensor qkv = box.random({1, T, (s.NH + 2 * s.NKV) * s.HS}, -2, 2);
  const Tensor dout = box.random({1, T, s.NH * s.HS});
  const Results want = whole(qkv, dout, s);
  for (cp = 2; cp <= 8; cp *= 2)
    for (fault = Fault::OrderOfArrival; fault <= Fault::ChunkTwice;
         fault = static_cast<Fault>(static_cast<int>(fault) + 1)) {
      const Results got = by_ranks(qkv, dout, s);
      EXPECT_FALSE(same_bits(got.dqkv, want.dqkv))
          << "cp " << cp << ", " << static_cast<int>(fault);
      // Only sums for keys depend on how leaves are folded.
      EXPECT_EQ(bool(same_bits(got.out, want.out)), fault == Fault::Unfolded)
          << "cp " << cp << ", " << static_cast<int>(fault);
    }
}

/// A query that sees none of the keys has absent sums.
TEST_P(AttentionPieces, WhatIsAbsentChangesNothing) {
  const int64_t T = 128, half = 64, HS = 4;
  const Tensor q = box.random({1, half, HS}), kv = box.random({1, half, 2 * HS});
  const auto piece = [&](int64_t query, int64_t key) {
    const Softmax x{box.empty(sums, q.shape), box.empty(sums, {1, 1, half}),
                    box.empty(sums, {1, 1, half})};
    k.attention_piece_forward(ctx, x.o, x.m, x.l, q, kv, {T, {query, query + half / 2}, key});
    return x;
  };
  const Softmax absent = piece(0, half), some = piece(half, 0);
  const Tensor dq = box.empty(sums, q.shape), dkv = box.empty(sums, kv.shape);
  k.attention_piece_backward(ctx, dq, dkv, q, q, kv, q, some.m, {T, {0, half / 2}, half});
  for (const Tensor& x : {dq, dkv, absent.o})
    for (int64_t i = 0; i < x.size(); ++i) EXPECT_TRUE(is_minus_zero(at(x, i))) << i;
  for (const auto& [got, want] : {std::array{sum_of(absent, some), some},
                                  {sum_of(some, absent), some},
                                  {sum_of(absent, absent), absent}})
    expect_same(got, want);
}

/// So far that the exponential of the distance is infinite. Only the larger one is left.
TEST_P(AttentionPieces, MaximaMayBeFarApart) {
  const Shape row{1, 8, 4}, statistic{1, 1, 8};
  const auto softmax = [&](double m) {
    return Softmax{box.random(sums, row, 1, 2), box.filled(sums, statistic, m),
                   box.random(sums, statistic, 1, 2)};
  };
  const Softmax low = softmax(-1000), high = softmax(1000);
  expect_same(sum_of(low, high), high);
  expect_same(sum_of(high, low), high);
}

TEST_P(AttentionPieces, PiecesAreWholeChunks) {
  const Tensor q = box.empty({1, 64, 4}), kv = box.empty({1, 64, 8}),
               m = box.empty(sums, {1, 1, 64});
  const Tensor o = box.empty(sums, q.shape);
  const auto forward = [&](int64_t query, int64_t key) {
    k.attention_piece_forward(ctx, o, m, m, q, kv, {128, {query, query + 32}, key});
  };
  EXPECT_NO_THROW(forward(32, 64));
  EXPECT_THROW(forward(31, 64), CheckError);
  EXPECT_THROW(forward(32, 65), CheckError);
  EXPECT_THROW(forward(96, 64), CheckError);
}

INSTANTIATE_TEST_SUITE_P(Tables, AttentionPieces, ::testing::ValuesIn(tables_of_all_dtypes()),
                         table_name);

}  // namespace
}  // namespace ladder::test
