// What all tables need for experts: which experts a token takes, and which rows those tokens have.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "kernels/kernels.h"
#include "kernels/shapes.h"
#include "kernels/token_leaves.h"

namespace ladder {

/// An expert, as one token ranks it.
template <class Real>
struct Candidate {
  Real key;  ///< its score, plus a bias if there is one
  int64_t expert;

  /// The larger key comes first, then the lower index; NaN comes before all numbers. This orders
  /// any two different candidates.
  constexpr bool before(const Candidate& other) const {
    const bool nan = key != key, other_nan = other.key != other.key;
    if (nan != other_nan) return nan;
    if (!nan && key != other.key) return key > other.key;
    return expert < other.expert;
  }
};

/// Finds the k of the E experts whose scores + bias are largest.
/// expert (k) = the indices of these experts, ascending.
/// scores (E); bias (E) or null; k <= E
template <class Real>
constexpr void choose_experts(int32_t* expert, const Real* scores, const Real* bias, int64_t E,
                              int64_t k) {
  Candidate<Real> last{};
  for (int64_t taken = 0; taken < k; ++taken) {
    Candidate<Real> best{.key = 0, .expert = -1};
    for (int64_t e = 0; e < E; ++e) {
      const Candidate<Real> next{.key = bias ? scores[e] + bias[e] : scores[e], .expert = e};
      if (taken > 0 && !last.before(next)) continue;  // already taken
      if (best.expert < 0 || next.before(best)) best = next;
    }
    last = best;
    int64_t at = taken;
    for (; at > 0 && expert[at - 1] > best.expert; --at) expert[at] = expert[at - 1];
    expert[at] = static_cast<int32_t>(best.expert);
  }
}

/// The sum of the scores of the experts that a token takes. expert (k)
template <class Real>
constexpr Real chosen_sum(const Real* scores, const int32_t* expert, int64_t k) {
  Real sum = 0;
  for (int64_t j = 0; j < k; ++j) sum += scores[expert[j]];
  return sum;
}

/// f_e: the load of an expert as a multiple of the mean load. If all loads are equal, it is 1.
template <class Real>
constexpr Real load_share(int32_t load, const Extents& s) {
  return static_cast<Real>(load) * static_cast<Real>(s.E) / static_cast<Real>(s.k * s.T);
}

/// Checks all experts before the first is used as an index. For tables that compute on the host.
inline void check_experts(const Tensor& expert, int64_t E, bool elsewhere) {
  const int32_t* e = expert.data<int32_t>();
  for (int64_t i = 0; i < expert.size(); ++i)
    CHECK((elsewhere && e[i] == kElsewhere) || (e[i] >= 0 && e[i] < E), "expert {} of {}", e[i], E);
}

/// Checks the offsets in the same way. All experts together have at most M rows.
inline void check_offsets(const ExpertRows& rows, int64_t M) {
  const int32_t* offset = rows.offsets.data<int32_t>();
  const int64_t E = rows.offsets.size() - 1;
  CHECK(offset[0] == 0 && std::is_sorted(offset, offset + E + 1) && offset[E] <= M,
        "{} rows of experts in {}", offset[E], M);
}

/// The rows of expert e.
inline Range rows_of(const ExpertRows& rows, int64_t e) {
  const int32_t* offset = rows.offsets.data<int32_t>();
  return {offset[e], offset[e + 1]};
}

/// Calls f(index, rows) for each token leaf (kernels/token_leaves.h) in which expert e has rows,
/// ascending. `index` counts the leaves of all sequences; `chunks` is Ctx::token_chunks. The rows
/// of each of the leaf's two chunks lie together.
template <class F>
void for_leaves(const ExpertRows& rows, int64_t e, int chunks, F&& f) {
  const int32_t* from = rows.from.data<int32_t>();
  const int64_t T = rows.row.dim(1), k = rows.row.dim(2), n = matrix_leaves(chunks, T);
  const auto [begin, end] = rows_of(rows, e);
  // The first row, from `first` on, of token (b, t) or of a later one.
  const auto find = [&](int64_t first, int64_t b, int64_t t) {
    return std::lower_bound(from + first, from + end, (b * T + t) * k) - from;
  };
  for (int64_t row = begin; row < end;) {
    const int64_t b = from[row] / (T * k), next = find(row, b + 1, 0);
    for (int64_t i = 0; i < n; ++i) {
      const Fold tokens = fold(i, n, T);
      const auto of = [&](Range t) { return Range{find(row, b, t.begin), find(row, b, t.end)}; };
      const Fold found{of(tokens.early), of(tokens.late)};
      if (found.early.size() + found.late.size() > 0) f(b * n + i, found);
    }
    row = next;
  }
}

/// expert_rows for tables that compute on the host. It sorts by counting. Experts are checked
/// before. expert (B,T,k)
inline void sort_by_expert(const ExpertRows& rows, const Tensor& expert, int64_t capacity) {
  const int64_t B = expert.dim(0), pairs = expert.dim(1) * expert.dim(2);
  const auto E = static_cast<size_t>(rows.offsets.size() - 1);
  const int32_t* chosen = expert.data<int32_t>();
  int32_t *offset = rows.offsets.data<int32_t>(), *row = rows.row.data<int32_t>();
  int32_t* from = rows.from.data<int32_t>();
  std::vector<int64_t> met(E);
  // Calls f(pair, e) for all pairs, ascending. A pair that has no row gets kNoRow for e.
  const auto for_pairs = [&](auto&& f) {
    for (int64_t b = 0; b < B; ++b) {
      std::fill(met.begin(), met.end(), 0);
      for (int64_t pair = b * pairs; pair < (b + 1) * pairs; ++pair) {
        const int32_t e = chosen[pair];
        const bool here = e != kElsewhere;
        f(pair, here && (capacity == 0 || met[static_cast<size_t>(e)]++ < capacity) ? e : kNoRow);
      }
    }
  };
  std::fill_n(offset, E + 1, 0);
  for_pairs([&](int64_t, int32_t e) {
    if (e != kNoRow) ++offset[e + 1];
  });
  for (size_t e = 0; e < E; ++e) offset[e + 1] += offset[e];
  std::vector<int32_t> next(offset, offset + E);
  for_pairs([&](int64_t pair, int32_t e) {
    row[pair] = e == kNoRow ? kNoRow : next[static_cast<size_t>(e)]++;
    if (e != kNoRow) from[row[pair]] = static_cast<int32_t>(pair);
  });
}

}  // namespace ladder
