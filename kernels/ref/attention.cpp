// Causal attention, arXiv 1706.03762: which terms each sum has, and in which order.
//
// A softmax over many keys is put together from softmaxes over few. For some keys we keep
//   m   the largest score;   l = sum_u exp(S[u] - m);   o = sum_u exp(S[u] - m) v_u.
// Two such triples are merged in two steps. The one with the smaller m is multiplied by
// exp(m - larger m), so that both are measured from the same m. Then they are added. At the end,
// out = o / l and lse = m + log l. Example: keys with scores 1 and 3, values 10 and 20. Alone they
// give (1, 1, 10) and (3, 1, 20); together (3, e^-2 + 1, 10 e^-2 + 20). So out is about 18.8.
//
// Ranks may share a sequence, so every sum over tokens is a tree over leaves (token_leaves.h). A
// sum over the keys of a query (m, l and o; dq) has chunks of keys as leaves. A sum over the
// queries of a key (dk, dv) has folded leaves; each takes the heads of a group one after the other.
// A leaf without a pair that counts is absent. A sum without leaves is -0, which changes no number
// that it is added to.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/attention_rows.h"
#include "kernels/documents.h"
#include "kernels/math.h"
#include "kernels/ref/dispatch.h"
#include "kernels/ref/ops.h"
#include "kernels/shapes.h"

namespace ladder::ref {
namespace {

template <class Real>
Real dot(int64_t n, const Real* a, const Real* b) {
  Real sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += a[i] * b[i];
  return sum;
}

/// A row of a result: HS sums, one for each column.
template <class Real>
struct Row {
  std::vector<Real> x;

  /// x += a y
  void add(Real a, const Real* y) {
    for (size_t i = 0; i < x.size(); ++i) x[i] += a * y[i];
  }
  friend Row operator+(Row a, const Row& b) {
    for (size_t i = 0; i < a.x.size(); ++i) a.x[i] += b.x[i];
    return a;
  }
};

/// zeros: a sum that terms will be added to. empty_sum: a sum that gets no terms.
template <class Real>
Row<Real> zeros(int64_t HS) {
  return {std::vector<Real>(static_cast<size_t>(HS), Real(0))};
}
template <class Real>
Row<Real> empty_sum(int64_t HS) {
  return {std::vector<Real>(static_cast<size_t>(HS), Real(-0.0))};
}

/// A softmax over some keys: see the top of this file.
template <class Real>
struct Softmax {
  Real m, l;
  Row<Real> o;

  static Softmax absent(int64_t HS) {
    return {-std::numeric_limits<Real>::infinity(), 0, empty_sum<Real>(HS)};
  }
  /// The softmax over the keys of both.
  friend Softmax operator+(const Softmax& a, const Softmax& b) {
    if (a.l == 0) return b;
    if (b.l == 0) return a;
    const Real top = std::max(a.m, b.m), of_a = math::exp(a.m - top), of_b = math::exp(b.m - top);
    Softmax sum{top, a.l * of_a + b.l * of_b, a.o};
    for (size_t i = 0; i < sum.o.x.size(); ++i) sum.o.x[i] = a.o.x[i] * of_a + b.o.x[i] * of_b;
    return sum;
  }
};

/// The queries and keys of a group of heads in one sequence, and where these tokens are in the
/// sequence.
template <class Real>
struct Group {
  int64_t T, Tq, Tk, r, HS;
  std::array<TokenRun, 2> queries;
  int64_t first_key;
  HeadRows<Real> q, k, v;  ///< q: that of the first of r heads

  Real scale() const { return 1 / std::sqrt(Real(HS)); }
  Real score(int64_t head, int64_t row, int64_t key) const {
    return dot(HS, q[row] + head * HS, k[key]) * scale();
  }
  /// The token in a row of queries.
  int64_t token(int64_t row) const {
    const TokenRun& run = queries[row < queries[1].row ? 0 : 1];
    return run.tokens.begin + row - run.row;
  }
  /// Rows of keys: those of chunk c of the sequence that token t sees.
  Range keys(int64_t c, int64_t t) const {
    const Range all = leaf(c, key_chunks(T), T);
    const auto row = [&](int64_t key) { return std::clamp<int64_t>(key - first_key, 0, Tk); };
    return {row(all.begin), row(std::min(all.end, t + 1))};
  }
  /// Calls f(row), ascending, for those queries in `tokens` that see the key in row `key`.
  template <class F>
  void for_queries(Range tokens, int64_t key, F&& f) const {
    for (int64_t t = std::max(tokens.begin, first_key + key); t < tokens.end; ++t)
      for (const TokenRun& run : queries)
        if (t >= run.tokens.begin && t < run.tokens.end) f(run.row + t - run.tokens.begin);
  }
};

/// Calls f(group, b, g) for every group of every sequence.
template <class Real, class F>
void for_groups(const Extents& s, const AttentionPositions& place, const AttentionColumns& at,
                Real* q, Real* kv, F&& f) {
  for (int64_t b = 0; b < s.B; ++b)
    for (int64_t g = 0; g < s.NKV; ++g) {
      const Group<Real> group{.T = place.T,
                              .Tq = s.Tq,
                              .Tk = s.Tk,
                              .r = s.NH / s.NKV,
                              .HS = s.HS,
                              .queries = query_runs(place, s.Tq),
                              .first_key = place.keys,
                              .q = head_rows(q, at.q, s.Tq, s.HS, b, g),
                              .k = head_rows(kv, at.k, s.Tk, s.HS, b, g),
                              .v = head_rows(kv, at.v, s.Tk, s.HS, b, g)};
      f(group, b, g);
    }
}

/// The softmax of one query over the keys of one chunk.
template <class Real>
Softmax<Real> over_chunk(const Group<Real>& group, int64_t head, int64_t row, Range keys) {
  std::vector<Real> score;
  for (int64_t u = keys.begin; u < keys.end; ++u) score.push_back(group.score(head, row, u));
  Softmax<Real> sum{*std::max_element(score.begin(), score.end()), 0, zeros<Real>(group.HS)};
  for (int64_t u = keys.begin; u < keys.end; ++u) {
    const Real weight = math::exp(score[static_cast<size_t>(u - keys.begin)] - sum.m);
    sum.l += weight;
    sum.o.add(weight, group.v[u]);
  }
  return sum;
}

/// Calls f(row, b, head, softmax) for every query of every head and sequence.
template <class Real, class F>
void for_softmaxes(const Extents& s, const AttentionPositions& place, const AttentionColumns& at,
                   Real* q, Real* kv, F&& f) {
  for_groups(s, place, at, q, kv, [&](const Group<Real>& group, int64_t b, int64_t g) {
    for (int64_t i = 0; i < group.r; ++i)
      for (int64_t row = 0; row < s.Tq; ++row) {
        TreeSum<Softmax<Real>> sum;
        for (int64_t c = 0; c < key_chunks(group.T); ++c)
          if (const Range keys = group.keys(c, group.token(row)); keys.size() > 0)
            sum.push(over_chunk(group, i, row, keys));
        f(row, b, g * group.r + i, sum.total(Softmax<Real>::absent(s.HS)));
      }
  });
}

/// P and dS / sqrt(HS) for all pairs of a group: (r,Tq,Tk).
template <class Real>
struct Pairs {
  std::vector<Real> P, dS;
  int64_t Tq, Tk;

  size_t at(int64_t head, int64_t row, int64_t key) const {
    return static_cast<size_t>((head * Tq + row) * Tk + key);
  }
};

/// dout, out: of the first of the group's r heads; lse (r,Tq). A query sees the keys up to its own
/// token. Other pairs are 0.
template <class Real>
Pairs<Real> pairs_of(const Group<Real>& group, HeadRows<Real> dout, HeadRows<Real> out,
                     const Real* lse) {
  const auto count = static_cast<size_t>(group.r * group.Tq * group.Tk);
  Pairs<Real> pairs{std::vector<Real>(count), std::vector<Real>(count), group.Tq, group.Tk};
  for (int64_t i = 0; i < group.r; ++i)
    for (int64_t row = 0; row < group.Tq; ++row) {
      const Real* dy = dout[row] + i * group.HS;
      // D is sum_u P[t,u] (dout_t . v_u), but needs no further pass over u.
      const Real D = dot(group.HS, dy, out[row] + i * group.HS);
      for (int64_t u = 0; u < group.Tk && group.first_key + u <= group.token(row); ++u) {
        const Real P = math::exp(group.score(i, row, u) - lse[i * group.Tq + row]);
        pairs.P[pairs.at(i, row, u)] = P;
        pairs.dS[pairs.at(i, row, u)] = P * (dot(group.HS, dy, group.v[u]) - D) * group.scale();
      }
    }
  return pairs;
}

/// dq of one query: a tree over chunks of keys.
template <class Real>
Row<Real> dq_of(const Group<Real>& group, const Pairs<Real>& pairs, int64_t head, int64_t row) {
  TreeSum<Row<Real>> sum;
  for (int64_t c = 0; c < key_chunks(group.T); ++c) {
    const Range keys = group.keys(c, group.token(row));
    if (keys.size() <= 0) continue;
    Row<Real> leaf = zeros<Real>(group.HS);
    for (int64_t u = keys.begin; u < keys.end; ++u)
      leaf.add(pairs.dS[pairs.at(head, row, u)], group.k[u]);
    sum.push(leaf);
  }
  return sum.total(empty_sum<Real>(group.HS));
}

/// sum_t weights[t,u] x_t for one key u, over all heads of the group: dk or dv. A tree over folded
/// leaves of queries. weights (r,Tq,Tk)
template <class Real>
Row<Real> over_queries(const Group<Real>& group, const Pairs<Real>& pairs,
                       const std::vector<Real>& weights, HeadRows<Real> x, int64_t key) {
  const int64_t n = query_leaves(group.T);
  SparseTreeSum<Row<Real>> sum;
  for (int64_t i = 0; i < n; ++i) {
    Row<Real> leaf = zeros<Real>(group.HS);
    bool exists = false;
    const auto [early, late] = fold(i, n, group.T);
    for (int64_t head = 0; head < group.r; ++head)
      for (const Range& tokens : {early, late})
        group.for_queries(tokens, key, [&](int64_t row) {
          leaf.add(weights[pairs.at(head, row, key)], x[row] + head * group.HS);
          exists = true;
        });
    if (exists) sum.push(i, leaf);
  }
  return sum.take(empty_sum<Real>(group.HS));
}

/// Tensors as in kernels.h. dq may be dkv, and q may be kv.
template <class Real>
void backward(const Extents& s, const AttentionPositions& place, const AttentionColumns& at,
              Real* dq, Real* dkv, Real* dout, Real* q, Real* kv, Real* out, const Real* lse) {
  for_groups(s, place, at, q, kv, [&](const Group<Real>& group, int64_t b, int64_t g) {
    const HeadColumns of_out{s.NKV, group.r, 0};
    const auto dy = head_rows(dout, of_out, s.Tq, s.HS, b, g);
    const auto y = head_rows(out, of_out, s.Tq, s.HS, b, g);
    const auto dx = head_rows(dq, at.q, s.Tq, s.HS, b, g);
    const auto dk = head_rows(dkv, at.k, s.Tk, s.HS, b, g);
    const auto dv = head_rows(dkv, at.v, s.Tk, s.HS, b, g);
    const Pairs<Real> pairs = pairs_of(group, dy, y, lse + (b * s.NKV + g) * group.r * s.Tq);
    const auto write = [](Real* to, const Row<Real>& row) { std::ranges::copy(row.x, to); };
    for (int64_t i = 0; i < group.r; ++i)
      for (int64_t row = 0; row < s.Tq; ++row)
        write(dx[row] + i * s.HS, dq_of(group, pairs, i, row));
    for (int64_t u = 0; u < s.Tk; ++u) {
      write(dk[u], over_queries(group, pairs, pairs.dS, group.q, u));
      write(dv[u], over_queries(group, pairs, pairs.P, dy, u));
    }
  });
}

/// out = o / l;  lse = m + log l.
template <class Real>
Real finish(Real* out, const Softmax<Real>& sum) {
  for (size_t i = 0; i < sum.o.x.size(); ++i) out[i] = sum.o.x[i] / sum.l;
  return sum.m + math::log(sum.l);
}

/// (o, m, l) of queries, as tensors hold them.
template <class Real>
struct Partials {
  Extents s;
  Real *o, *m, *l;

  int64_t statistic(int64_t b, int64_t h, int64_t row) const { return (b * s.NH + h) * s.Tq + row; }
  int64_t column(int64_t b, int64_t h, int64_t row) const {
    return ((b * s.Tq + row) * s.NH + h) * s.HS;
  }
  Softmax<Real> at(int64_t b, int64_t h, int64_t row) const {
    const int64_t i = statistic(b, h, row);
    const Real* from = o + column(b, h, row);
    return {m[i], l[i], {std::vector<Real>(from, from + s.HS)}};
  }
  void set(int64_t b, int64_t h, int64_t row, const Softmax<Real>& sum) const {
    m[statistic(b, h, row)] = sum.m;
    l[statistic(b, h, row)] = sum.l;
    std::ranges::copy(sum.o.x, o + column(b, h, row));
  }
  /// Calls f(b, h, row) for every query.
  template <class F>
  void for_each(F&& f) const {
    for (int64_t b = 0; b < s.B; ++b)
      for (int64_t h = 0; h < s.NH; ++h)
        for (int64_t row = 0; row < s.Tq; ++row) f(b, h, row);
  }
};

}  // namespace

void attention_forward(const Ctx& ctx, Tensor out, Tensor lse, Tensor qkv) {
  const Extents all = check_shapes(Op::attention_forward, out, lse, qkv);
  if (ctx.documents.borders)
    return attend_documents(
        ctx, all.B, all.T, {out, lse}, [&](const Ctx& alone, const DocumentRows& one) {
          attention_forward(alone, one.of(out), one.statistics(lse), one.of(qkv));
        });
  const Extents s = piece_of(all);
  dispatch(out, [&]<class Real>(Real) {
    // Only the places are of use: out lies as o does, and lse as m.
    const Partials<Real> at{s, out.data<Real>(), lse.data<Real>(), nullptr};
    Real* x = qkv.data<Real>();
    const AttentionPositions place = whole_sequence(s.T, ctx.documents.chunk_length);
    for_softmaxes(s, place, AttentionColumns::together(s.NKV, s.NH / s.NKV), x, x,
                  [&](int64_t row, int64_t b, int64_t h, const Softmax<Real>& sum) {
                    at.m[at.statistic(b, h, row)] = finish(at.o + at.column(b, h, row), sum);
                  });
  });
}

void attention_backward(const Ctx& ctx, Tensor dqkv, Tensor dout, Tensor qkv, Tensor out,
                        Tensor lse) {
  const Extents all = check_shapes(Op::attention_backward, dqkv, dout, qkv, out, lse);
  if (ctx.documents.borders)
    return attend_documents(ctx, all.B, all.T, {dqkv},
                            [&](const Ctx& alone, const DocumentRows& one) {
                              attention_backward(alone, one.of(dqkv), one.of(dout), one.of(qkv),
                                                 one.of(out), one.statistics(lse));
                            });
  const Extents s = piece_of(all);
  dispatch(out, [&]<class Real>(Real) {
    Real *x = qkv.data<Real>(), *dx = dqkv.data<Real>();
    const AttentionPositions place = whole_sequence(s.T, ctx.documents.chunk_length);
    backward(s, place, AttentionColumns::together(s.NKV, s.NH / s.NKV), dx, dx, dout.data<Real>(),
             x, x, out.data<Real>(), lse.data<Real>());
  });
}

void attention_piece_forward(const Ctx& ctx, Tensor o, Tensor m, Tensor l, Tensor q, Tensor kv,
                             const AttentionPositions& place) {
  refuse_documents(ctx, "attention_piece_forward");
  const Extents s = check_shapes(Op::attention_piece_forward, o, m, l, q, kv, place);
  dispatch(q, [&]<class Real>(Real) {
    const Partials<Real> to{s, o.data<Real>(), m.data<Real>(), l.data<Real>()};
    for_softmaxes(s, place, AttentionColumns::apart(s.NKV, s.NH / s.NKV), q.data<Real>(),
                  kv.data<Real>(),
                  [&](int64_t row, int64_t b, int64_t h, const Softmax<Real>& sum) {
                    to.set(b, h, row, sum);
                  });
  });
}

void attention_cached(const Ctx& ctx, Tensor out, Tensor qkv, Tensor cache, int64_t heads,
                      const CachedPlace& place) {
  refuse_documents(ctx, "attention_cached");
  const Extents s =
      piece_of(check_shapes(Op::attention_cached, out, qkv, cache, heads, place), place);
  const AttentionPositions one_run{place.T, {place.first, place.first + s.Tq / 2}, 0};
  dispatch(qkv, [&]<class Real>(Real) {
    const Partials<Real> to{s, out.data<Real>(), nullptr, nullptr};
    for_softmaxes(s, one_run, AttentionColumns::cached(s.NKV, s.NH / s.NKV), qkv.data<Real>(),
                  cache.data<Real>(),
                  [&](int64_t row, int64_t b, int64_t h, const Softmax<Real>& sum) {
                    finish(to.o + to.column(b, h, row), sum);
                  });
  });
}

void attention_merge(const Ctx&, Tensor o, Tensor m, Tensor l, Tensor later_o, Tensor later_m,
                     Tensor later_l) {
  const Extents s = check_shapes(Op::attention_merge, o, m, l, later_o, later_m, later_l);
  dispatch(o, [&]<class Real>(Real) {
    const Partials<Real> sum{s, o.data<Real>(), m.data<Real>(), l.data<Real>()};
    const Partials<Real> later{s, later_o.data<Real>(), later_m.data<Real>(), later_l.data<Real>()};
    sum.for_each([&](int64_t b, int64_t h, int64_t row) {
      sum.set(b, h, row, sum.at(b, h, row) + later.at(b, h, row));
    });
  });
}

void attention_finish(const Ctx&, Tensor out, Tensor lse, Tensor o, Tensor m, Tensor l) {
  const Extents s = check_shapes(Op::attention_finish, out, lse, o, m, l);
  dispatch(o, [&]<class Real>(Real) {
    const Partials<Real> from{s, o.data<Real>(), m.data<Real>(), l.data<Real>()};
    from.for_each([&](int64_t b, int64_t h, int64_t row) {
      lse.data<Real>()[from.statistic(b, h, row)] =
          finish(out.data<Real>() + from.column(b, h, row), from.at(b, h, row));
    });
  });
}

void attention_piece_backward(const Ctx&, Tensor dq, Tensor dkv, Tensor dout, Tensor q, Tensor kv,
                              Tensor out, Tensor lse, const AttentionPositions& place) {
  const Extents s =
      check_shapes(Op::attention_piece_backward, dq, dkv, dout, q, kv, out, lse, place);
  dispatch(q, [&]<class Real>(Real) {
    backward(s, place, AttentionColumns::apart(s.NKV, s.NH / s.NKV), dq.data<Real>(),
             dkv.data<Real>(), dout.data<Real>(), q.data<Real>(), kv.data<Real>(), out.data<Real>(),
             lse.data<Real>());
  });
}

}  // namespace ladder::ref
