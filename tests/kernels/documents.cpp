// Rows that hold documents, in `ref` and `cpu`. A document has the bits that it has alone. Sums are
// trees over the documents of a bundle, then over bundles, wherever documents lie in rows.
#include "tests/kernels/documents.h"

#include <cmath>
#include <optional>

#include "tests/kernels/same_bits.h"

namespace ladder::test {
namespace {

class DocumentsTest : public SameBits {
 protected:
  static constexpr int64_t T = LaidDocuments::T, D = LaidDocuments::D;
  static constexpr auto kLengths = LaidDocuments::kLengths;
  const Placement packed = LaidDocuments::packed(), unpacked = LaidDocuments::unpacked();
  LaidDocuments laid{box};

  Ctx with(const Placement& place) {
    Ctx other = ctx;
    other.documents = laid.borders(place);
    return other;
  }
  /// What a call writes for documents that lie as `place` says, if kernels are told that they lie
  /// as `borders` says. The numbers of padding are NaN.
  std::vector<Tensor> run(const Call& call, const Placement& place, const Placement& borders) {
    const std::vector<Tensor> out = laid.outputs(call, place, dtype);
    laid.laid(call, place, NAN).on(k, with(borders), out, 0, place.B);
    return out;
  }
  std::vector<Tensor> run(const Call& call, const Placement& place) {
    return run(call, place, place);
  }

  /// What the call writes for document d alone.
  std::vector<Tensor> alone(const Call& source, int64_t d) {
    Call call = source;
    const int64_t L = kLengths[size_t(d)];
    for (Operand& o : call.in) {
      if (!o.x || !is_of_sequences(o.kind)) continue;
      const Tensor from = std::exchange(o.x, laid.sized(o.x, 1, L, 1));
      std::ranges::copy(LaidDocuments::bytes(from, {d * T, d * T + L}, D * T),
                        LaidDocuments::bytes(o.x, {0, L}, L).begin());
    }
    std::vector<Tensor> out;
    for (const Tensor& x : call.outputs(box, dtype))
      out.push_back(call.sums() ? x : laid.sized(x, 1, L, 1));
    call.on(k, ctx, out, 0, 1);
    return out;
  }

  /// The tree over documents; those without tokens are absent.
  Tensor tree(std::vector<std::optional<Tensor>> x) {
    for (size_t step = 1; step < x.size(); step *= 2)
      for (size_t i = 0; i + step < x.size(); i += 2 * step) {
        if (x[i] && x[i + step]) k.add(ctx, *x[i], *x[i], *x[i + step]);
        if (!x[i]) x[i] = x[i + step];
      }
    return *x[0];
  }

  std::vector<Call> all() { return calls_of_documents(box, {.B = D, .T = T}, dtype); }
};

TEST_P(DocumentsTest, HaveTheBitsThatTheyHaveAlone) {
  use_threads();
  for (const Call& call : all()) {
    const auto in_rows = run(call, packed), apart = run(call, unpacked);
    std::vector<std::vector<std::optional<Tensor>>> terms(in_rows.size());
    for (int64_t d = 0; d < D; ++d) {
      if (kLengths[size_t(d)] == 0) {
        for (auto& of : terms) of.push_back({});
        continue;
      }
      const auto want = alone(call, d);
      for (size_t i = 0; i < want.size(); ++i) {
        terms[i].push_back(want[i]);
        if (call.sums()) continue;
        for (const auto& [got, place] : {std::pair{in_rows[i], &packed}, {apart[i], &unpacked}}) {
          const bool is_loss = got.shape.rank == 1;
          const Range rows = is_loss ? Range{d, d + 1} : place->documents[size_t(d)];
          const auto own = LaidDocuments::bytes(got, rows, is_loss ? D : place->B * T);
          EXPECT_TRUE(std::ranges::equal(own, LaidDocuments::bytes(want[i], {0, 1}, 1)))
              << call.name << ", output " << i << ", document " << d;
        }
      }
    }
    for (size_t i = 0; call.sums() && i < terms.size(); ++i) {
      EXPECT_TRUE(same_bits(in_rows[i], apart[i])) << call.name << ", output " << i;
      EXPECT_TRUE(same_bits(in_rows[i], tree(terms[i]))) << call.name << ", output " << i;
    }
  }
}

TEST_P(DocumentsTest, NegativeControlsDiffer) {
  Placement no_bundles = packed, one_later = packed, with_padding = packed;
  std::erase_if(no_bundles.documents, [](const Range& rows) { return rows.size() == 0; });
  while (std::ssize(no_bundles.documents) < D) no_bundles.documents.push_back({0, 0});
  ++one_later.documents[0].end;
  ++one_later.documents[1].begin;
  ++with_padding.documents[2].end;
  for (const Call& call : all()) {
    const auto want = run(call, packed);
    const auto differs = [&](const Placement& wrong) {
      const auto got = run(call, packed, wrong);
      bool any = false;
      for (size_t i = 0; i < got.size(); ++i) any = any || !same_bits(got[i], want[i]);
      return any;
    };
    EXPECT_EQ(differs(one_later), feels_documents(call)) << call.name;
    if (!call.sums()) continue;
    EXPECT_TRUE(differs(no_bundles)) << call.name;
    EXPECT_TRUE(differs(with_padding)) << call.name;
  }
}

/// Sums do not look at turns that are empty in every bundle. They have the same bits if they do.
TEST_P(DocumentsTest, UnusedTurnsChangeNothing) {
  for (const Call& call : all()) {
    const auto want = run(call, packed);
    const auto same_with = [&](int64_t used) {
      Ctx other = with(packed);
      other.documents.used = used;
      const std::vector<Tensor> got = laid.outputs(call, packed, dtype);
      laid.laid(call, packed, NAN).on(k, other, got, 0, packed.B);
      bool same = true;
      for (size_t i = 0; i < got.size(); ++i) same = same && same_bits(got[i], want[i]);
      return same;
    };
    EXPECT_TRUE(same_with(LaidDocuments::kTurns)) << call.name;
    if (!call.sums()) continue;
    EXPECT_FALSE(same_with(2)) << call.name;  // loses third documents
  }
}

TEST_P(DocumentsTest, PaddingIsFinite) {
  for (const Call& call : all()) {
    const std::string name = call.name;
    if (name != "embed_forward" && !name.starts_with("attention")) continue;
    for (const Placement& place : {packed, unpacked})
      for (const Tensor& x : run(call, place))
        for (int64_t i = 0; i < x.size(); ++i) ASSERT_TRUE(std::isfinite(at(x, i))) << name;
  }
}

/// Two documents of a row, with chunk_length W: attention has the bits of each alone at the
/// beginning of W tokens, of which the later ones have no gradient. With its own length, a document
/// has other bits.
TEST_P(DocumentsTest, AttentionHasTheChunksOfAWindow) {
  const int64_t rows = 520, NH = 4, NKV = 2, HS = 8, C = NH * HS, all = (NH + 2 * NKV) * HS;
  const Range documents[] = {{0, 301}, {301, 520}};
  const Tensor qkv = spread(box, {1, rows, all}), dout = box.random({1, rows, C});
  struct Attended {
    Tensor out, lse, dqkv;
  };
  const auto attend = [&](const Ctx& with, Tensor x, Tensor dy) {
    const int64_t tokens = x.dim(1);
    const Attended r{box.empty({1, tokens, C}), box.empty(sums, {1, NH, tokens}),
                     box.empty({1, tokens, all})};
    k.attention_forward(with, r.out, r.lse, x);
    k.attention_backward(with, r.dqkv, dy, x, r.out, r.lse);
    return r;
  };
  const auto packed_row = [&](int64_t chunk_length) {
    Ctx with = ctx;
    const Tensor borders = box.empty(Dtype::I32, {2, 2});
    for (int i = 0; i < 2; ++i) {
      borders.data<int32_t>()[2 * i] = static_cast<int32_t>(documents[i].begin);
      borders.data<int32_t>()[2 * i + 1] = static_cast<int32_t>(documents[i].end);
    }
    with.documents = {borders, box.empty(Dtype::I32, {1, rows})};
    with.documents.longest = fill_positions(with.documents.position, borders);
    with.documents.chunk_length = chunk_length;
    return attend(with, qkv, dout);
  };
  /// Tokens `from` of x (1,T,N) at the beginning of W tokens; the others are `rest`.
  const auto window_of = [&](Tensor x, Range from, int64_t W, double rest) {
    const Tensor to = box.empty({1, W, x.dim(2)});
    for (int64_t i = 0; i < to.size(); ++i) set(to, i, rest);
    std::ranges::copy(LaidDocuments::bytes(x, from, x.dim(1)),
                      LaidDocuments::bytes(to, {0, from.size()}, W).begin());
    return to;
  };
  const auto same = [&](const Attended& row, int64_t W) {
    bool equal = true;
    for (const Range& one : documents) {
      const Attended alone = attend(ctx, window_of(qkv, one, W, 0.5), window_of(dout, one, W, 0));
      for (const auto& [got, want] : {std::pair{row.out, alone.out}, {row.dqkv, alone.dqkv}})
        equal = equal && std::ranges::equal(LaidDocuments::bytes(got, one, rows),
                                            LaidDocuments::bytes(want, {0, one.size()}, W));
    }
    return equal;
  };
  use_threads();
  for (const int64_t W : {rows, int64_t{1000}}) {
    EXPECT_TRUE(same(packed_row(W), W)) << W;
    if (dtype == Dtype::F32) {
      EXPECT_FALSE(same(packed_row(0), W)) << W;
    }
  }
  EXPECT_THROW(packed_row(300), CheckError);
}

TEST_P(DocumentsTest, WithoutADocumentSumsAreNothing) {
  Placement none = packed;
  for (Range& rows : none.documents) rows = {0, 0};
  for (const Call& call : all()) {
    const auto out = run(call, none);
    for (size_t o = 0; call.sums() && o < out.size(); ++o)
      for (int64_t i = 0; i < out[o].size(); ++i)
        ASSERT_TRUE(is_minus_zero(at(out[o], i))) << call.name;
  }
}

TEST_P(DocumentsTest, AttentionTakesNoRows) {
  Ctx none = ctx;
  none.documents = {box.empty(Dtype::I32, {0, 2}), box.empty(Dtype::I32, {0, T})};
  const Tensor out = box.empty({0, T, 8}), lse = box.empty(sums, {0, 2, T});
  const Tensor qkv = box.empty({0, T, 24});
  k.attention_forward(none, out, lse, qkv);
  k.attention_backward(none, qkv, out, qkv, out, lse);
  expect_refused("attention_forward", [&] { k.attention_forward(none, qkv, lse, qkv); });
}

TEST_P(DocumentsTest, WhatBreaksTheRuleIsRefused) {
  for (const auto& [d, rows] : std::vector<std::pair<size_t, Range>>{
           {1, {0, 130}}, {1, {100, 230}}, {2, {131, 130}}, {18, {500, 601}}}) {
    Placement wrong = packed;
    wrong.documents[d] = rows;
    EXPECT_THROW(laid.borders(wrong), CheckError) << d;
  }
  const Tensor db = box.empty(sums, {3}), dout = box.random({packed.B, T, 3});
  Ctx documents = with(packed);
  expect_refused("documents of up to",
                 [&] { k.bias_backward(documents, db, dout.slice(0, 1), Into::Write); });
  expect_refused("route_forward takes whole rows",
                 [&] { k.route_forward(documents, {}, {}, {}, {}, {}, {}, {}, {}); });
  expect_refused("attention_piece_forward takes whole rows",
                 [&] { k.attention_piece_forward(documents, {}, {}, {}, {}, {}, {}); });
  Ctx odd = documents;
  odd.documents.used = 3;
  expect_refused("3 of 8 turns in use", [&] { k.bias_backward(odd, db, dout, Into::Write); });
  documents.token_chunks = kTokenChunks / 2;
  expect_refused("documents where ranks share a sequence",
                 [&] { k.bias_backward(documents, db, dout, Into::Write); });
}

INSTANTIATE_TEST_SUITE_P(Tables, DocumentsTest,
                         ::testing::Values(Table{ref_kernels, 1}, Table{cpu_kernels, 1},
                                           Table{cpu_kernels, 3}, Table{ref_kernels, 1, Dtype::F64},
                                           Table{cpu_kernels, 3, Dtype::F16},
                                           Table{cpu_kernels, 3, Dtype::BF16}),
                         table_name);

}  // namespace
}  // namespace ladder::test
