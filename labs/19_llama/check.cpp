// Norms, SwiGLU, turned queries and keys, and heads that share keys: forward and backward, in
// double.
#include "labs/check.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "common/run/backend.h"
#include "kernels/arena.h"
#include "kernels/kernels.h"
#include "labs/rounded.h"

namespace ladder::lab {
namespace {

/// Kernels that compute in double, and memory.
struct Bench {
  const Sheet& sheet;
  Arena arena;
  Ctx ctx = {};
  const Kernels& ref = kernels_of("ref");

  explicit Bench(const Sheet& sheet_) : sheet(sheet_) { ctx.kernels = &ref; }
  /// Numbers that nobody has written yet: NaN.
  Tensor unwritten(Shape shape) { return arena.alloc(Mem::Workspace, "lab", Dtype::F64, shape); }
  Tensor drawn(const char* name, Shape shape) { return drawn_double(sheet, arena, name, shape); }
};

/// A norm with drawn numbers; whether it has a bias does not depend on its kind. What backward
/// reads is computed here, not by the student's code.
struct NormCase {
  Bench m;
  bool centred;  ///< layer norm; else RMSNorm
  int64_t B = 2, T, C;
  Tensor inp, w, b, dout, mean, rstd;

  NormCase(const Sheet& sheet, bool centred_, bool biased)
      : m(sheet),
        centred(centred_),
        T(sheet.pick<int64_t>("tokens", {4, 5})),
        C(sheet.pick<int64_t>("channels", {6, 8, 12})),
        inp(m.drawn("inp", {B, T, C})),
        w(m.drawn("w", {C})),
        b(biased ? m.drawn("b", {C}) : Tensor{}),
        dout(m.drawn("dout", {B, T, C})),
        mean(centred ? m.unwritten({B, T}) : Tensor{}),
        rstd(m.unwritten({B, T})) {
    // Rows whose mean is far from zero, and one of zeros: then it matters where epsilon stands.
    for (int64_t i = 0; i < inp.size(); ++i)
      inp.data<double>()[i] = i < C ? 0 : inp.data<double>()[i] + 3;
    for (int64_t row = 0; row < B * T; ++row) {
      const double* x = inp.data<double>() + row * C;
      double sum = 0, squares = 0;
      for (int64_t c = 0; c < C; ++c) sum += x[c];
      const double middle = centred ? sum / static_cast<double>(C) : 0;
      for (int64_t c = 0; c < C; ++c) squares += (x[c] - middle) * (x[c] - middle);
      rstd.data<double>()[row] = 1 / std::sqrt(squares / static_cast<double>(C) + 1e-5);
      if (centred) mean.data<double>()[row] = middle;
    }
  }
};

void run_forward(Sheet& sheet, bool centred) {
  NormCase n(sheet, centred, centred);
  const Tensor out = n.m.unwritten(n.inp.shape), rstd = n.m.unwritten(n.rstd.shape);
  const Tensor mean = centred ? n.m.unwritten(n.rstd.shape) : Tensor{};
  n.m.ref.norm_forward(n.m.ctx, out, mean, rstd, n.inp, n.w, n.b);
  sheet.bits("forward/norm: out", rounded(out));
  sheet.bits("forward/norm: rstd", rounded(rstd));
}
void run_input(Sheet& sheet, bool centred) {
  NormCase n(sheet, centred, centred);
  const Tensor dinp = n.m.unwritten(n.inp.shape);
  n.m.ref.norm_backward_input(n.m.ctx, dinp, n.dout, n.inp, n.w, n.mean, n.rstd);
  sheet.bits("backward/input", rounded(dinp));
}
void run_weights(Sheet& sheet, bool centred, bool biased) {
  NormCase n(sheet, centred, biased);
  const Tensor dw = n.m.unwritten({n.C}), db = biased ? n.m.unwritten({n.C}) : Tensor{};
  for (const Into into : {Into::Write, Into::Add}) {
    n.m.ref.norm_backward_weight(n.m.ctx, dw, db, n.dout, n.inp, n.mean, n.rstd, into);
    const char* how = into == Into::Write ? "written" : "added";
    sheet.bits(fmt::format("backward/weights: gains, {}", how), rounded(dw));
    if (biased) sheet.bits(fmt::format("backward/weights: biases, {}", how), rounded(db));
  }
}

void run_swiglu(Sheet& sheet, bool far_below) {
  Bench m(sheet);
  const Shape outs{2, 3, sheet.pick<int64_t>("inner", {6, 8})}, ins{2, 3, 2 * outs.dims[2]};
  const Tensor inp = m.drawn("gates and values", ins), dout = m.drawn("dout", outs),
               out = m.unwritten(outs), dinp = m.unwritten(ins);
  for (int64_t i = 0; i < outs.size(); ++i) {
    double* gate = inp.data<double>() + 2 * i;
    if (far_below) {
      // On both sides of -88. So little passes that only large values and gradients show it.
      gate[0] = -60 - 300 * std::abs(gate[0]);
      gate[1] *= 1e28;
      dout.data<double>()[i] *= 1e28;
    } else if (i % 3 == 0) {  // so far that exp() of a double is infinite, or 0
      gate[0] = (i % 2 == 0 ? 1 : -1) * (800 + 100 * std::abs(gate[0]));
    } else if (i % 3 == 1) {
      gate[0] *= 30;
    }
  }
  m.ref.swiglu_forward(m.ctx, out, inp);
  sheet.bits("swiglu/forward", rounded(out));
  m.ref.swiglu_backward(m.ctx, dinp, dout, inp);
  sheet.bits("swiglu/backward", rounded(dinp));
}

struct Heads {
  int64_t B, T, NH, NKV, HS;
  int64_t columns() const { return (NH + 2 * NKV) * HS; }
};

void run_rope(Sheet& sheet, const Heads& s) {
  Bench m(sheet);
  // A row more than tokens: a table may be longer.
  const Tensor angles = m.arena.zeros(Mem::Workspace, "angles", Dtype::F32, {s.T + 1, s.HS});
  for (int64_t t = 0; t <= s.T; ++t)
    for (int64_t i = 0; i < s.HS / 2; ++i) {
      const double angle = static_cast<double>(t) * std::pow(10.0, -static_cast<double>(i));
      angles.data<float>()[t * s.HS + i] = static_cast<float>(std::cos(angle));
      angles.data<float>()[t * s.HS + s.HS / 2 + i] = static_cast<float>(std::sin(angle));
    }
  for (const bool back : {false, true}) {
    const Tensor qkv = m.drawn("qkv", {s.B, s.T, s.columns()});
    m.ref.rope(m.ctx, qkv, angles, s.NH, back);
    sheet.bits(back ? "rope/turned back" : "rope/turned", rounded(qkv));
  }
}

void run_heads(Sheet& sheet, const Heads& s) {
  Bench m(sheet);
  const Tensor qkv = m.drawn("qkv", {s.B, s.T, s.columns()});
  const Shape tokens{s.B, s.T, s.NH * s.HS};
  const Tensor dout = m.drawn("dout", tokens), out = m.unwritten(tokens);
  const Tensor lse = m.unwritten({s.B, s.NH, s.T}), dqkv = m.unwritten(qkv.shape);
  m.ref.attention_forward(m.ctx, out, lse, qkv);
  m.ref.attention_backward(m.ctx, dqkv, dout, qkv, out, lse);
  // Queries, keys and values by themselves: who has one of them sees it.
  const int64_t r = s.NH / s.NKV, group = (r + 2) * s.HS;
  for (int64_t part = 0; part < 3; ++part) {
    const int64_t first = part == 0 ? 0 : (r + part - 1) * s.HS, n = part == 0 ? r * s.HS : s.HS;
    const Tensor columns = m.unwritten({s.B * s.T * s.NKV, n});
    for (int64_t row = 0; row < columns.dim(0); ++row)
      std::copy_n(dqkv.data<double>() + row * group + first, n, columns.data<double>() + row * n);
    sheet.bits(fmt::format("heads/{}", part == 0   ? "queries"
                                       : part == 1 ? "keys"
                                                   : "values"),
               rounded(columns));
  }
}

/// A piece of a sequence that has four chunks of 32 tokens: queries of the second and of the last,
/// and keys from the second on. So no row has the number of its token.
void run_piece(Sheet& sheet, const Heads& s) {
  Bench m(sheet);
  const AttentionPositions place{.T = s.T, .queries = {32, 96}, .keys = 32};
  const Shape queries{s.B, 64, s.NH * s.HS}, keys{s.B, 96, 2 * s.NKV * s.HS};
  const Tensor q = m.drawn("q", queries), kv = m.drawn("kv", keys), out = m.drawn("out", queries),
               dout = m.drawn("dout", queries), lse = m.drawn("lse", {s.B, s.NH, 64});
  const Tensor dq = m.unwritten(queries), dkv = m.unwritten(keys);
  m.ref.attention_piece_backward(m.ctx, dq, dkv, dout, q, kv, out, lse, place);
  sheet.bits("heads/queries of a piece", rounded(dq));
  sheet.bits("heads/keys and values of a piece", rounded(dkv));
}

}  // namespace

void cases(Sheet& sheet) {
  for (const bool centred : {true, false}) {
    const std::string name = centred ? "layer norm" : "RMSNorm";
    sheet.run(name, [&] { run_forward(sheet, centred); });
    sheet.run(name + ", input", [&] { run_input(sheet, centred); });
    for (const bool biased : {true, false})
      sheet.run(fmt::format("{} {} a bias, weights", name, biased ? "with" : "without"),
                [&] { run_weights(sheet, centred, biased); });
  }
  for (const bool far_below : {false, true})
    sheet.run(far_below ? "SwiGLU, far below 0" : "SwiGLU", [&] { run_swiglu(sheet, far_below); });
  const auto shared = sheet.pick<int64_t>("shared", {2, 3});
  const auto head = sheet.pick<int64_t>("head", {4, 6});
  sheet.run("a piece of a sequence",
            [&] { run_piece(sheet, {.B = 1, .T = 128, .NH = shared, .NKV = 1, .HS = head}); });
  for (const auto& [NH, NKV] : {std::pair<int64_t, int64_t>{2, 2}, {2 * shared, 2}, {4, 1}}) {
    const Heads s{
        .B = 2, .T = sheet.pick<int64_t>("positions", {5, 7}), .NH = NH, .NKV = NKV, .HS = head};
    const std::string name = fmt::format("{} query heads, {} of keys", NH, NKV);
    sheet.run(name + ", turned", [&] { run_rope(sheet, s); });
    sheet.run(name, [&] { run_heads(sheet, s); });
  }
}

}  // namespace ladder::lab
