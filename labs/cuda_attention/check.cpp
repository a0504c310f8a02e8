// What the kernels of lab cuda_attention compute, in which order, and what they move.
#include "labs/check.h"

#include "labs/cuda_attention/causal.h"
#include "labs/watched.h"

namespace ladder::lab {
namespace {

/// Numbers of doubles or floats with kHead columns.
template <class T>
T at(const std::vector<T>& x, int row, int column) {
  return x[static_cast<size_t>(row * kHead + column)];
}

/// A result in double, and what FP32 may be off by.
struct Exact {
  explicit Exact(int T, int columns) : value(static_cast<size_t>(T * columns)), off(value.size()) {}
  /// A weight below 2^-126 has fewer bits, whatever it is multiplied by here.
  void add(int row, int column, double x, double off_by) {
    value[static_cast<size_t>(row * kHead + column)] += x;
    off[static_cast<size_t>(row * kHead + column)] += 1.01 * off_by + 1e-40;
  }
  std::vector<double> value, off;
};

/// Attention over T tokens, forward and backward, in double. A product of kHead numbers takes kHead
/// + 2 roundings, of what its terms are without their signs. An exponential is off by what its
/// argument is, and by 2 roundings. A sum of up to T terms takes T roundings.
struct Problem {
  Problem(const Sheet& sheet, int T_, float spread) : T(T_) {
    for (const auto& [x, name] : {std::pair{&q, "q"}, {&k, "k"}, {&v, "v"}, {&dout, "dout"}})
      *x = sheet.normals(name, int64_t{T} * kHead);
    for (float& x : q) x *= spread;
    for (int t = 0; t < T; ++t) query(t);
  }

  int T;
  std::vector<float> q, k, v, dout, lse_given, delta_given;
  Exact out{T, kHead}, dq{T, kHead}, dk{T, kHead}, dv{T, kHead}, lse{T, 1};

 private:
  struct Dot {
    double value = 0, sizes = 0;
  };
  static Dot dot(const std::vector<float>& a, int t, const std::vector<float>& b, int u) {
    Dot sum;
    for (int c = 0; c < kHead; ++c) {
      sum.value += double{at(a, t, c)} * at(b, u, c);
      sum.sizes += std::abs(double{at(a, t, c)} * at(b, u, c));
    }
    return sum;
  }

  /// Adds what query t has to do with all keys.
  void query(int t) {
    const double scale = 1 / std::sqrt(kHead);
    std::vector<double> s, s_off;
    double max = -INFINITY, sum = 0, off = 0, delta = 0;
    for (int u = 0; u <= t; ++u) {
      const Dot score = dot(q, t, k, u);
      s.push_back(scale * score.value);
      s_off.push_back(kUnit * (kHead + 2) * scale * score.sizes);
      max = std::max(max, s.back());
    }
    for (const double x : s) sum += std::exp(x - max);
    const double log_sum = max + std::log(sum);
    // A weight under the maximum, which each tile may raise: 4 roundings for each tile.
    for (size_t u = 0; u < s.size(); ++u) off = std::max(off, s_off[u] + kUnit * (max - s[u]));
    off += kUnit * (T + 4.0 * (T / kTile + 1) + 4);
    lse.value[static_cast<size_t>(t)] = log_sum;
    lse.off[static_cast<size_t>(t)] =
        1.01 * (off + kUnit * (std::abs(log_sum) + 2 * std::log(sum)));
    for (int u = 0; u <= t; ++u)
      for (int c = 0; c < kHead; ++c) {
        const double term = std::exp(s[static_cast<size_t>(u)] - log_sum) * at(v, u, c);
        out.add(t, c, term, 2 * off * std::abs(term));
      }
    for (int c = 0; c < kHead; ++c) delta += at(dout, t, c) * at(out.value, t, c);
    lse_given.push_back(static_cast<float>(log_sum));
    delta_given.push_back(static_cast<float>(delta));
    for (int u = 0; u <= t; ++u) {
      const double score = s[static_cast<size_t>(u)], p = std::exp(score - log_sum);
      const double p_off = s_off[static_cast<size_t>(u)] +
                           kUnit * (std::abs(log_sum) + std::abs(score - log_sum) + 3);
      const Dot dp = dot(dout, t, v, u);
      const double rest = dp.value - delta, ds = p * rest * scale;
      const double ds_off = scale * p *
                            ((p_off + 4 * kUnit) * std::abs(rest) +
                             kUnit * ((kHead + 2) * dp.sizes + std::abs(delta)));
      for (int c = 0; c < kHead; ++c) {
        const auto off_by = [&](double x, double x_off, double y) {
          return (x_off + kUnit * (T + 2) * std::abs(x)) * std::abs(y);
        };
        dq.add(t, c, ds * at(k, u, c), off_by(ds, ds_off, at(k, u, c)));
        dk.add(u, c, ds * at(q, t, c), off_by(ds, ds_off, at(q, t, c)));
        dv.add(u, c, p * at(dout, t, c), off_by(p, p * p_off, at(dout, t, c)));
      }
    }
  }
};

struct Inputs {
  explicit Inputs(const Problem& of)
      : q(of.q), k(of.k), v(of.v), dout(of.dout), lse(of.lse_given), delta(of.delta_given) {}
  OnDevice<float> q, k, v, dout, lse, delta;
};

/// A case: one of the three kernels.
/// @param owned  tiles that a block reads or writes once
/// @param beside bytes of numbers that are not in tiles, for each pair of tiles
/// @param once   the same, for each token
template <class Kernel>
void check_kernel(Sheet& sheet, const std::string& name, const Problem& of, bool counted, int owned,
                  int64_t beside, int64_t once, std::initializer_list<const Exact*> right,
                  const Kernel& kernel) {
  const int64_t tiles = (of.T + kTile - 1) / kTile, tile = kTile * kHead * 4;
  const int64_t pairs = tiles * (tiles + 1) / 2;  // those above the diagonal are left out
  const auto bytes = [&](int64_t n) {
    return tile * (owned * tiles + 2 * n) + beside * n + once * of.T;
  };
  sheet.run(name + " " + std::to_string(of.T), [&] {
    sheet.wanted([&] {
      want_right(sheet);
      sheet.text("values/other", kNear);
      if (!counted) return;
      sheet.count("bytes", bytes(pairs));
      sheet.count("conflicts", 0);
    });
    if (counted) {
      sheet.without_idea("bytes", bytes(tiles * tiles));
      sheet.without_idea("conflicts", pairs * kTile * kHead * 31);
    }
    OnDevice<float> a(static_cast<int64_t>(right.begin()[0]->value.size())),
        b(static_cast<int64_t>(right.begin()[1]->value.size()));
    const Start start{.grid = {.x = tiles}, .threads = kCausalThreads, .outputs = {&a, &b}};
    const on_cpu::Watched seen = watch(sheet, start, [&] { kernel(a.data, b.data); });
    sheet.text("values", near(a, right.begin()[0]->value, right.begin()[0]->off));
    sheet.text("values/other", near(b, right.begin()[1]->value, right.begin()[1]->off));
    if (!counted) return;
    sheet.count("bytes", seen.bytes_read + seen.bytes_written);
    sheet.count("conflicts", seen.bank_conflicts);
  });
}

void check_kernels(Sheet& sheet, const std::string& name, int T, float spread, bool counted) {
  const Problem of(sheet, T, spread);
  const Inputs x(of);
  const Exact none(0, 1);
  check_kernel(
      sheet, name + ", forward", of, counted, 2, 0, 32, {&of.out, &of.lse},
      [&](float* out, float* lse) { causal_forward(out, lse, x.q.data, x.k.data, x.v.data, T); });
  check_kernel(sheet, name + ", queries", of, counted, 3, 64 * kTile, 0, {&of.dq, &none},
               [&](float* dq, float*) {
                 causal_backward_queries(dq, x.dout.data, x.q.data, x.k.data, x.v.data, x.lse.data,
                                         x.delta.data, T);
               });
  check_kernel(sheet, name + ", keys", of, counted, 4, 8 * kCausalThreads, 0, {&of.dk, &of.dv},
               [&](float* dk, float* dv) {
                 causal_backward_keys(dk, dv, x.dout.data, x.q.data, x.k.data, x.v.data, x.lse.data,
                                      x.delta.data, T);
               });
}

}  // namespace

void cases(Sheet& sheet) {
  check_kernels(sheet, "whole", 2 * kTile, 1, true);
  check_kernels(sheet, "large", sheet.pick("large", {35, 38, 41}), 40, false);
  check_kernels(sheet, "short", sheet.pick("short", {1, 9, 17}), 1, false);
}

}  // namespace ladder::lab
