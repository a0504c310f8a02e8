#include "kernels/shapes.h"

#include <initializer_list>

#include "kernels/check_shapes.h"
#include "kernels/documents.h"

namespace ladder {
namespace {

/// Views (.., N) as (rows, N).
Tensor as_matrix(const Tensor& tensor) { return tensor.view({tensor.rows(), tensor.dim(-1)}); }

/// Checks that tensors have one dtype and one shape.
int64_t check_alike(const char* op, const Tensor& first, std::initializer_list<Tensor> others) {
  check_first(op, "first operand", first, first.shape.rank);
  CHECK(first, "{}: first operand is null", op);
  for (const Tensor& other : others) check(op, {{"operand", other, first.dtype, first.shape}});
  return first.size();
}

/// embed_forward with its tables, or embed_backward with the gradients of the tables.
EmbedShape check_embed(const char* op, const Tensor& x, const Tensor& tokens, const Tensor& wte,
                       const Tensor& wpe, Dtype table) {
  check_first(op, "activation", x, 3);
  check_first(op, "wte", wte, 2);
  EmbedShape s{x.dim(0), x.dim(1), x.dim(2), wte.dim(0), 0};
  check(op, {{"activation", x, x.dtype, x.shape},
             {"tokens", tokens, Dtype::I32, {s.B, s.T}},
             {"wte", wte, table, {s.V, s.C}}});
  if (!wpe) return s;
  check_first(op, "wpe", wpe, 2);
  s.P = wpe.dim(0);
  check(op, {{"wpe", wpe, table, {s.P, s.C}}});
  CHECK(s.P >= s.T, "{}: {} tokens, {} positions", op, s.T, s.P);
  return s;
}

/// An operand, and its name in the operation.
struct Operand {
  const char* name;
  const Tensor& tensor;
};

/// norm_*: `like_inp` is the output or its gradient; w and b are the parameters or their gradients.
NormShape check_norm(const char* op, const Tensor& inp, Operand like_inp, const Tensor& mean,
                     const Tensor& rstd, Operand w, Operand b, Dtype of_params) {
  check_first(op, "inp", inp, 3);
  const NormShape s{inp.dim(0), inp.dim(1), inp.dim(2)};
  check(op, {{"inp", inp, inp.dtype, inp.shape},
             {like_inp.name, like_inp.tensor, inp.dtype, inp.shape},
             {"rstd", rstd, wide(inp.dtype), {s.B, s.T}},
             {w.name, w.tensor, of_params, {s.C}}});
  if (mean) check(op, {{"mean", mean, wide(inp.dtype), {s.B, s.T}}});
  if (b.tensor) check(op, {{b.name, b.tensor, of_params, {s.C}}});
  return s;
}

/// swiglu_*: y (the output or its gradient) has half the columns of x. Returns the number of
/// elements of y.
int64_t check_gates(const char* op, Operand y, Operand x) {
  check_first(op, y.name, y.tensor, y.tensor.shape.rank);
  Shape doubled = y.tensor.shape;
  CHECK(doubled.rank > 0, "{}: {} has no columns", op, y.name);
  doubled.dims[static_cast<size_t>(doubled.rank - 1)] *= 2;
  check(op, {{y.name, y.tensor, y.tensor.dtype, y.tensor.shape},
             {x.name, x.tensor, y.tensor.dtype, doubled}});
  return y.tensor.size();
}

/// The extents of a linear layer: y (..,N), x (..,K), w (N,K). y and x may be gradients.
MatmulShape check_linear(const char* op, Operand y, Operand x, const Tensor& w, int leaves) {
  CHECK(w.shape.rank == 2, "{}: w is {}, not of rank 2", op, to_string(w.shape));
  const MatmulShape s{x.tensor.rows(), w.dim(0), w.dim(1)};
  check(op, {{"w", w, w.dtype, w.shape},
             {y.name, as_matrix(y.tensor), y.tensor.dtype, {s.rows, s.N}},
             {x.name, as_matrix(x.tensor), x.tensor.dtype, {s.rows, s.K}}});
  CHECK(leaves >= 1, "{}: {} leaves", op, leaves);
  return s;
}

/// Logits, of which all but `vocab` columns are padding, and statistics of their rows.
CrossEntropyShape check_rows(const char* op, const Tensor& logits, int64_t vocab,
                             std::initializer_list<Tensor> statistics) {
  check_first(op, "logits", logits, 3);
  const CrossEntropyShape s{logits.dim(0), logits.dim(1), logits.dim(2)};
  check(op, {{"logits", logits, logits.dtype, logits.shape}});
  for (const Tensor& x : statistics)
    check(op, {{"max, sum or target", x, wide(logits.dtype), {s.B, s.T}}});
  CHECK(vocab >= 0 && vocab <= s.V, "{}: a vocabulary of {} in {} columns", op, vocab, s.V);
  return s;
}

/// The operands of a loss.
void check_loss(const char* op, const Ctx& ctx, const CrossEntropyShape& s, const Tensor& losses,
                const Tensor& dlogits, const Tensor& logits, const Tensor& targets) {
  check(op, {{"losses", losses, wide(logits.dtype), {sequences_of(ctx, s.B, s.T).count}},
             {"targets", targets, Dtype::I32, {s.B, s.T}}});
  if (dlogits) check(op, {{"dlogits", dlogits, logits.dtype, logits.shape}});
}

/// A matrix and the limbs of its rows.
MatrixShape check_limbs(const char* op, Operand limbs, Operand x) {
  check_first(op, x.name, x.tensor, 2);
  const MatrixShape s{x.tensor.dim(0), x.tensor.dim(1)};
  check(op, {{x.name, x.tensor, x.tensor.dtype, x.tensor.shape},
             {limbs.name, limbs.tensor, Dtype::I64, {s.R, kLimbs}}});
  return s;
}

/// One factor of a product: it has the dtype of activations, or is FP8 with a scale.
void check_factor(const char* op, const char* name, const Tensor& x, Dtype activations) {
  CHECK(!is_fp8(x.dtype) || x.fp8, "{}: {} is FP8 without a scale", op, name);
  if (is_fp8(x.dtype))
    CHECK(x.fp8->scale >= 1 / kMaxFp8Scale && x.fp8->scale <= kMaxFp8Scale,
          "{}: {} has a scale of {}", op, name, x.fp8->scale);
  CHECK(is_fp8(x.dtype) ? is_narrow(activations) : x.dtype == activations,
        "{}: {} has the wrong dtype", op, name);
}

}  // namespace

EmbedShape check_embed_forward(const Tensor& out, const Tensor& tokens, const Tensor& wte,
                               const Tensor& wpe) {
  return check_embed("embed_forward", out, tokens, wte, wpe, out.dtype);
}

EmbedShape check_embed_backward(const Tensor& dwte, const Tensor& dwpe, const Tensor& dout,
                                const Tensor& tokens) {
  return check_embed("embed_backward", dout, tokens, dwte, dwpe, wide(dout.dtype));
}

NormShape check_norm_forward(const Tensor& out, const Tensor& mean, const Tensor& rstd,
                             const Tensor& inp, const Tensor& w, const Tensor& b) {
  return check_norm("norm_forward", inp, {"out", out}, mean, rstd, {"w", w}, {"b", b}, inp.dtype);
}

NormShape check_norm_backward_input(const Tensor& dinp, const Tensor& dout, const Tensor& inp,
                                    const Tensor& w, const Tensor& mean, const Tensor& rstd) {
  constexpr const char* kOp = "norm_backward_input";
  check(kOp, {{"dinp", dinp, inp.dtype, inp.shape}});
  return check_norm(kOp, inp, {"dout", dout}, mean, rstd, {"w", w}, {"b", Tensor{}}, inp.dtype);
}

NormShape check_norm_backward_weight(const Tensor& dw, const Tensor& db, const Tensor& dout,
                                     const Tensor& inp, const Tensor& mean, const Tensor& rstd) {
  return check_norm("norm_backward_weight", inp, {"dout", dout}, mean, rstd, {"dw", dw}, {"db", db},
                    wide(inp.dtype));
}

MatmulShape check_matmul_forward(const Tensor& out, const Tensor& inp, const Tensor& w,
                                 const Tensor& bias, int leaves) {
  constexpr const char* kOp = "matmul_forward";
  check_first(kOp, "out", out, out.shape.rank);
  const MatmulShape s = check_linear(kOp, {"out", out}, {"inp", inp}, w, leaves);
  check_factor(kOp, "inp", inp, out.dtype);
  check_factor(kOp, "w", w, out.dtype);
  if (bias) check(kOp, {{"bias", bias, out.dtype, {s.N}}});
  return s;
}

MatmulShape check_matmul_backward_input(const Tensor& dinp, const Tensor& dout, const Tensor& w,
                                        int leaves) {
  constexpr const char* kOp = "matmul_backward_input";
  check_first(kOp, "dinp", dinp, dinp.shape.rank);
  check_factor(kOp, "dout", dout, dinp.dtype);
  check_factor(kOp, "w", w, dinp.dtype);
  return check_linear(kOp, {"dout", dout}, {"dinp", dinp}, w, leaves);
}

MatmulWeightShape check_matmul_backward_weight(const Tensor& dw, const Tensor& dout,
                                               const Tensor& inp) {
  constexpr const char* kOp = "matmul_backward_weight";
  CHECK(dout.shape.rank == 3, "{}: dout is {}, not of rank 3", kOp, to_string(dout.shape));
  const MatmulWeightShape s{dout.dim(0), dout.dim(1), dout.dim(2), inp.dim(-1)};
  check(kOp, {{"dout", dout, dout.dtype, dout.shape},
              {"dw", dw, wide(dout.dtype), {s.N, s.K}},
              {"inp", inp, inp.dtype, {s.B, s.T, s.K}}});
  // Two FP8 factors do not tell which narrow dtype the activations have.
  const Dtype activations = !is_fp8(dout.dtype)  ? dout.dtype
                            : !is_fp8(inp.dtype) ? inp.dtype
                                                 : Dtype::BF16;
  check_float(kOp, is_fp8(dout.dtype) ? "inp" : "dout", activations);
  check_factor(kOp, "dout", dout, activations);
  check_factor(kOp, "inp", inp, activations);
  return s;
}

BiasShape check_bias_backward(const Tensor& db, const Tensor& dout) {
  constexpr const char* kOp = "bias_backward";
  check_first(kOp, "dout", dout, 3);
  const BiasShape s{dout.dim(0), dout.dim(1), dout.dim(2)};
  check(kOp, {{"dout", dout, dout.dtype, dout.shape}, {"db", db, wide(dout.dtype), {s.N}}});
  return s;
}

int64_t check_gelu_forward(const Tensor& out, const Tensor& inp) {
  return check_alike("gelu_forward", out, {inp});
}

int64_t check_gelu_backward(const Tensor& dinp, const Tensor& dout, const Tensor& inp) {
  return check_alike("gelu_backward", dinp, {dout, inp});
}

int64_t check_swiglu_forward(const Tensor& out, const Tensor& inp) {
  return check_gates("swiglu_forward", {"out", out}, {"inp", inp});
}

int64_t check_swiglu_backward(const Tensor& dinp, const Tensor& dout, const Tensor& inp) {
  constexpr const char* kOp = "swiglu_backward";
  check(kOp, {{"dinp", dinp, inp.dtype, inp.shape}});
  return check_gates(kOp, {"dout", dout}, {"inp", inp});
}

int64_t check_add(const Tensor& out, const Tensor& a, const Tensor& b) {
  return check_alike("add", out, {a, b});
}

int64_t check_cast(const Tensor& out, const Tensor& inp) {
  constexpr const char* kOp = "cast";
  check_first(kOp, "inp", inp, inp.shape.rank);
  check(kOp, {{"inp", inp, inp.dtype, inp.shape}, {"out", out, out.dtype, inp.shape}});
  CHECK(is_narrow(out.dtype) || out.dtype == Dtype::F32, "{}: out is no float", kOp);
  CHECK(!is_fp8(out.dtype) || out.fp8, "{}: out is FP8 without a scale", kOp);
  return inp.size();
}

int64_t check_scale(const Tensor& x) { return check_alike("scale", x, {}); }

ResidualShape check_residual_forward(const Tensor& out, const Tensor& residual,
                                     const Tensor& product, const Tensor& bias) {
  check_alike("residual_forward", out, {residual, product});
  const ResidualShape s{out.rows(), out.dim(-1)};
  if (bias) check("residual_forward", {{"bias", bias, out.dtype, {s.C}}});
  return s;
}

ColumnsShape check_copy_columns(const Tensor& to, int64_t to_column, const Tensor& from,
                                int64_t from_column, int64_t count) {
  constexpr const char* kOp = "copy_columns";
  check_first(kOp, "to", to, 3);
  check_first(kOp, "from", from, 3);
  const ColumnsShape s{to.dim(0), to.dim(1), to.dim(2), from.dim(2)};
  check(kOp, {{"to", to, to.dtype, to.shape}, {"from", from, from.dtype, {s.R, s.G, s.from}}});
  CHECK(wide(to.dtype) == wide(from.dtype), "{}: from has the wrong dtype", kOp);
  CHECK(to_column >= 0 && from_column >= 0 && count >= 0 && to_column + count <= s.to &&
            from_column + count <= s.from,
        "{}: {} columns from {} of {} to {} of {}", kOp, count, from_column, s.from, to_column,
        s.to);
  return s;
}

CrossEntropyShape check_cross_entropy(const Ctx& ctx, const Tensor& losses, const Tensor& dlogits,
                                      const Tensor& logits, const Tensor& targets, int64_t vocab) {
  constexpr const char* kOp = "cross_entropy";
  const CrossEntropyShape s = check_rows(kOp, logits, vocab, {});
  check_loss(kOp, ctx, s, losses, dlogits, logits, targets);
  CHECK(vocab >= 1, "{}: no vocabulary", kOp);
  return s;
}

CrossEntropyShape check_softmax_max(const Tensor& max, const Tensor& logits, int64_t vocab) {
  return check_rows("softmax_max", logits, vocab, {max});
}

CrossEntropyShape check_softmax_sum(const Tensor& sum, const Tensor& target, const Tensor& logits,
                                    const Tensor& max, const Tensor& targets, int64_t vocab) {
  constexpr const char* kOp = "softmax_sum";
  const CrossEntropyShape s = check_rows(kOp, logits, vocab, {sum, target, max});
  check(kOp, {{"targets", targets, Dtype::I32, {s.B, s.T}}});
  return s;
}

CrossEntropyShape check_softmax_loss(const Ctx& ctx, const Tensor& losses, const Tensor& dlogits,
                                     const Tensor& logits, const Tensor& max, const Tensor& sum,
                                     const Tensor& target, const Tensor& targets, int64_t vocab) {
  constexpr const char* kOp = "softmax_loss";
  const CrossEntropyShape s = check_rows(kOp, logits, vocab, {max, sum, target});
  check_loss(kOp, ctx, s, losses, dlogits, logits, targets);
  return s;
}

MatrixShape check_squared_norm(const Tensor& limbs, const Tensor& x) {
  return check_limbs("squared_norm", {"limbs", limbs}, {"x", x});
}

MatrixShape check_adaptive_clip(const Tensor& grad, const Tensor& grad_limbs,
                                const Tensor& weight_limbs) {
  constexpr const char* kOp = "adaptive_clip";
  check_limbs(kOp, {"weight_limbs", weight_limbs}, {"grad", grad});
  return check_limbs(kOp, {"grad_limbs", grad_limbs}, {"grad", grad});
}

int64_t check_sgd_update(const Tensor& param, const Tensor& velocity, const Tensor& grad) {
  return velocity ? check_alike("sgd_update", param, {velocity, grad})
                  : check_alike("sgd_update", param, {grad});
}

int64_t check_adamw_update(const Tensor& param, const Tensor& m, const Tensor& v,
                           const Tensor& grad) {
  return check_alike("adamw_update", param, {m, v, grad});
}

int64_t check_lion_update(const Tensor& param, const Tensor& m, const Tensor& grad) {
  return check_alike("lion_update", param, {m, grad});
}

MatrixShape check_adafactor_update(const Tensor& param, const Tensor& row, const Tensor& col,
                                   const Tensor& grad) {
  constexpr const char* kOp = "adafactor_update";
  check_alike(kOp, param, {grad});
  check_first(kOp, "param", param, col ? 2 : 1);
  const MatrixShape s{col ? param.dim(0) : 1, param.dim(-1)};
  check(kOp, {{"row", row, param.dtype, {col ? s.R : s.N}}});
  if (col) check(kOp, {{"col", col, param.dtype, {s.N}}});
  return s;
}

int64_t check_adamw8bit_update(const Tensor& param, const Tensor& m_code, const Tensor& m_scale,
                               const Tensor& v_code, const Tensor& v_scale, const Tensor& grad) {
  constexpr const char* kOp = "adamw8bit_update";
  const int64_t N = check_alike(kOp, param, {grad});
  const int64_t blocks = round_up(N, kQuantBlock) / kQuantBlock;
  check(kOp, {{"m_code", m_code, Dtype::U8, {N}},
              {"m_scale", m_scale, param.dtype, {blocks}},
              {"v_code", v_code, Dtype::U8, {N}},
              {"v_scale", v_scale, param.dtype, {blocks}}});
  return N;
}

}  // namespace ladder
