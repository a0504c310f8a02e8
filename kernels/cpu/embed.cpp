// Embeddings: forward adds rows of two tables, backward sums the gradients of those rows.
//
// The gradient of a token's row is a sum over all places of the batch where the token occurs, in
// the leaves of a matrix (kernels/token_leaves.h). Tokens are first sorted by counting; those of a
// leaf stay together.
#include <cstring>
#include <utility>

#include "kernels/cpu/columns.h"
#include "kernels/cpu/dispatch.h"
#include "kernels/cpu/table.h"
#include "kernels/documents.h"
#include "kernels/shapes.h"

namespace ladder::cpu {
namespace {

/// A row of the batch, and the leaf of the whole sum that it is in.
struct Occurrence {
  int32_t row, leaf;
};

/// Where each token of the vocabulary occurs. The places of token v are where[start[v]] to
/// where[start[v + 1] - 1], in the order of sequences, then leaves, then tokens. Padding and tokens
/// that are kElsewhere are left out.
struct Occurrences {
  std::span<int32_t> start;
  std::span<Occurrence> where;

  std::span<const Occurrence> of(int64_t v) const {
    const auto first = static_cast<size_t>(start[static_cast<size_t>(v)]);
    const auto last = static_cast<size_t>(start[static_cast<size_t>(v) + 1]);
    return where.subspan(first, last - first);
  }
};

Occurrences sort_by_token(const Ctx& ctx, const Tensor& all, int64_t V,
                          const Sequences& sequences) {
  check_tokens(all, V);
  const std::span<const int32_t> tokens(all.data<int32_t>(), static_cast<size_t>(all.size()));
  const auto at = [](int64_t v) { return static_cast<size_t>(v); };
  const int64_t starts = round_up<int64_t>(V + 1, 2);
  const std::span<int32_t> memory = shared_scratch<int32_t>(ctx, starts + 2 * all.size());
  const Occurrences found{
      .start = memory.first(at(V) + 1),
      .where{reinterpret_cast<Occurrence*>(memory.data() + starts), at(all.size())}};
  std::fill(found.start.begin(), found.start.end(), 0);
  for_matrix_leaves(sequences, ctx.token_chunks, [&](int64_t, const Fold& leaf) {
    for_rows(leaf, [&](int64_t row) {
      if (tokens[at(row)] != kElsewhere) ++found.start[at(tokens[at(row)])];
    });
  });
  int32_t before = 0;
  for (int32_t& entry : found.start) before += std::exchange(entry, before);
  for_matrix_leaves(sequences, ctx.token_chunks, [&](int64_t index, const Fold& leaf) {
    for_rows(leaf, [&](int64_t row) {
      if (const int32_t token = tokens[at(row)]; token != kElsewhere)
        found.where[at(found.start[at(token)]++)] = {static_cast<int32_t>(row),
                                                     static_cast<int32_t>(index)};
    });
  });
  // Each start has moved to the start of the next token.
  std::memmove(found.start.data() + 1, found.start.data(), at(V) * sizeof(int32_t));
  found.start[0] = 0;
  return found;
}

/// sums += the columns that x points at.
template <class Real, class Columns>
HWY_INLINE void add_columns(ColumnSums<1>& sums, const Real* x, Columns columns) {
  columns.each([&](int64_t part, int64_t i, auto io) {
    sums.at(0, part) = hn::Add(sums.at(0, part), io.load(x + i));
  });
}

/// The sum of dout over `places`, in the columns that dout points at.
template <class Real, class Columns>
ColumnSums<1> sum_places(std::span<const Occurrence> places, const Real* dout, int64_t C,
                         Columns columns) {
  SparseTreeSum<ColumnSums<1>> tree;
  for (size_t i = 0; i < places.size();) {
    const int32_t leaf = places[i].leaf;
    ColumnSums<1> sums = ColumnSums<1>::nothing();
    for (; i < places.size() && places[i].leaf == leaf; ++i)
      add_columns(sums, dout + places[i].row * C, columns);
    tree.push(leaf, sums);
  }
  return tree.take(ColumnSums<1>::nothing());
}

/// The sum of dout over token t of each sequence, in the columns that dout points at.
template <class Real, class Columns>
ColumnSums<1> sum_position(int64_t t, const Real* dout, int64_t C, const Sequences& sequences,
                           Columns columns) {
  SparseTreeSum<ColumnSums<1>> tree;
  for (int64_t b = 0; b < sequences.count; ++b) {
    const Range rows = sequences[b];
    if (t >= rows.size()) continue;
    ColumnSums<1> sums = ColumnSums<1>::nothing();
    add_columns(sums, dout + (rows.begin + t) * C, columns);
    tree.push(b, sums);
  }
  return tree.take(ColumnSums<1>::nothing());
}

}  // namespace

void embed_forward(const Ctx& ctx, Tensor out, Tensor tokens, Tensor wte, Tensor wpe) {
  const Extents s = check_shapes(Op::embed_forward, out, tokens, wte, wpe);
  const int32_t* token = tokens.data<int32_t>();
  check_tokens(tokens, s.V);
  const Positions positions = positions_of(ctx, s.B, s.T);
  dispatch(out, [&]<class Real>(Real) {
    const Real* words = wte.data<Real>();
    const Real* places = wpe.data<Real>();
    Real* to = out.data<Real>();
    parallel_for(ctx, s.B * s.T, 1, s.C, [&](Range range) {
      for (int64_t row = range.begin; row < range.end; ++row) {
        Real* sum = to + row * s.C;
        if (token[row] == kElsewhere) {
          for_vectors(0, s.C, [&](int64_t c, auto io) { io.store(nothing(), sum + c); });
          continue;
        }
        const Real* word = words + token[row] * s.C;
        const Real* place = places ? places + positions[row] * s.C : nullptr;
        for_vectors(0, s.C, [&](int64_t c, auto io) {
          const Vec of_place = place ? io.load(place + c) : nothing();
          io.store(hn::Add(io.load(word + c), of_place), sum + c);
        });
      }
    });
  });
}

void embed_backward(const Ctx& ctx, Tensor dwte, Tensor dwpe, Tensor dout, Tensor tokens,
                    Into into) {
  const Extents s = check_shapes(Op::embed_backward, dwte, dwpe, dout, tokens);
  const Sequences sequences = sequences_of(ctx, s.B, s.T);
  const Occurrences found = sort_by_token(ctx, tokens, s.V, sequences);
  float* words = dwte.data<float>();
  float* places = dwpe.data<float>();
  dispatch(dout, [&]<class Real>(Real) {
    const Real* above = dout.data<Real>();
    const auto add_words = [&]<class Wide>(Range range, Wide) {
      for (int64_t v = 0; v < s.V; ++v)
        for_columns<Wide>(range, [&](int64_t c, auto columns) {
          auto sums = sum_places(found.of(v), above + c, s.C, columns);
          put_columns(words + v * s.C + c, sums, 0, columns, into);
        });
    };
    const auto add_places = [&](Range range) {
      for (int64_t t = 0; t < s.P; ++t)
        for_columns(range, [&](int64_t c, auto columns) {
          auto sums = sum_position(t, above + c, s.C, sequences, columns);
          put_columns(places + t * s.C + c, sums, 0, columns, into);
        });
    };
    const bool past_caches = into == Into::Write && goes_past_caches(dwte, {});
    parallel_for(ctx, s.C, kColumns, s.B * s.T + s.V, [&](Range range) {
      past_caches ? add_words(range, PastCaches{}) : add_words(range, Whole{});
      add_places(range);
    });
  });
}

}  // namespace ladder::cpu
