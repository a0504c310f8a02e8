// Pieces of attention: what is absent, maxima that are far apart, and what no piece may be. That
// pieces on several ranks have the bits of the whole: tests/20_context_parallel/ways.cpp and
// ../layouts.txt.
#include <array>
#include <utility>

#include "tests/kernels/same_bits.h"

namespace ladder::test {
namespace {

struct Softmax {
  Tensor o, m, l;
};

class AttentionPieces : public SameBits {
 protected:
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
};

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
