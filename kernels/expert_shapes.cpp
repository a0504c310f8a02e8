// The shapes of routers and experts.
#include "kernels/check_shapes.h"
#include "kernels/shapes.h"

namespace ladder {
namespace {

/// The tensors that forward and backward of a router have in common.
RouteShape check_route(const char* op, const Tensor& logits, const Tensor& expert,
                       const Tensor& scores, const Tensor& load) {
  check_first(op, "logits", logits, 3);
  CHECK(!is_narrow(logits.dtype), "{}: logits are narrow, not F32", op);
  CHECK(expert.shape.rank == 3, "{}: expert is {}, not of rank 3", op, to_string(expert.shape));
  const RouteShape s{logits.dim(0), logits.dim(1), logits.dim(2), expert.dim(2)};
  check(op, {{"logits", logits, logits.dtype, logits.shape},
             {"expert", expert, Dtype::I32, {s.B, s.T, s.k}},
             {"scores", scores, logits.dtype, logits.shape},
             {"load", load, Dtype::I32, {s.B, s.E}}});
  CHECK(s.k >= 1 && s.k <= s.E, "{}: {} experts a token of {}", op, s.k, s.E);
  return s;
}

ExpertShape check_rows(const char* op, const ExpertRows& rows) {
  CHECK(rows.row.shape.rank == 3, "{}: row is {}, not of rank 3", op, to_string(rows.row.shape));
  CHECK(rows.from.shape.rank == 1, "{}: from is {}, not of rank 1", op, to_string(rows.from.shape));
  const ExpertShape s{.B = rows.row.dim(0),
                      .T = rows.row.dim(1),
                      .k = rows.row.dim(2),
                      .E = rows.offsets.size() - 1,
                      .M = rows.from.dim(0),
                      .C = 0};
  check(op, {{"offsets", rows.offsets, Dtype::I32, {s.E + 1}},
             {"row", rows.row, Dtype::I32, rows.row.shape},
             {"from", rows.from, Dtype::I32, {s.M}}});
  CHECK(s.E >= 1, "{}: no experts", op);
  return s;
}

/// Rows of experts, and the tensors that hold a row for each token.
ExpertShape check_tokens(const char* op, const ExpertRows& rows, const char* token_name,
                         const Tensor& token, const char* row_name, const Tensor& row) {
  ExpertShape s = check_rows(op, rows);
  check_first(op, token_name, token, 3);
  s.C = token.dim(2);
  check(op, {{token_name, token, token.dtype, {s.B, s.T, s.C}},
             {row_name, row, row.dtype, {s.M, s.C}}});
  return s;
}

/// out, inp and w, or the gradient of any of them.
GroupedShape check_grouped(const char* op, const char* out_name, const Tensor& out,
                           const char* inp_name, const Tensor& inp, const Tensor& w, Dtype of_w,
                           const ExpertRows& rows) {
  const ExpertShape r = check_rows(op, rows);
  check_first(op, out_name, out, 2);
  check_first(op, "w", w, 3);
  const GroupedShape s{r.E, r.M, w.dim(1), w.dim(2)};
  check(op, {{"w", w, of_w, {s.E, s.N, s.K}},
             {out_name, out, out.dtype, {s.M, s.N}},
             {inp_name, inp, out.dtype, {s.M, s.K}}});
  return s;
}

}  // namespace

RouteShape check_route_forward(const Tensor& expert, const Tensor& weight, const Tensor& scores,
                               const Tensor& load, const Tensor& losses, const Tensor& logits,
                               const Tensor& bias) {
  constexpr const char* kOp = "route_forward";
  const RouteShape s = check_route(kOp, logits, expert, scores, load);
  check(kOp, {{"weight", weight, logits.dtype, expert.shape},
              {"losses", losses, logits.dtype, {2, s.B}}});
  if (bias) check(kOp, {{"bias", bias, logits.dtype, {s.E}}});
  return s;
}

RouteShape check_route_backward(const Tensor& dlogits, const Tensor& dweight, const Tensor& expert,
                                const Tensor& scores, const Tensor& load, const Tensor& logits) {
  constexpr const char* kOp = "route_backward";
  const RouteShape s = check_route(kOp, logits, expert, scores, load);
  check(kOp, {{"dlogits", dlogits, logits.dtype, logits.shape},
              {"dweight", dweight, logits.dtype, expert.shape}});
  return s;
}

ExpertShape check_expert_rows(const ExpertRows& rows, const Tensor& expert, int64_t capacity) {
  constexpr const char* kOp = "expert_rows";
  const ExpertShape s = check_rows(kOp, rows);
  check(kOp, {{"expert", expert, Dtype::I32, rows.row.shape}});
  CHECK(capacity >= 0, "{}: a capacity of {}", kOp, capacity);
  const int64_t most = s.B * s.T * s.k;
  const int64_t needed = capacity == 0 ? most : std::min(most, s.B * s.E * capacity);
  CHECK(s.M >= needed, "{}: room for {} rows, not {}", kOp, s.M, needed);
  return s;
}

ExpertShape check_gather_rows(const Tensor& out, const Tensor& inp, const ExpertRows& rows) {
  constexpr const char* kOp = "gather_rows";
  CHECK(out.dtype == inp.dtype, "{}: out has the wrong dtype", kOp);
  return check_tokens(kOp, rows, "inp", inp, "out", out);
}

GroupedShape check_grouped_matmul_forward(const Tensor& out, const Tensor& inp, const Tensor& w,
                                          const ExpertRows& rows, int leaves) {
  constexpr const char* kOp = "grouped_matmul_forward";
  CHECK(leaves >= 1, "{}: {} leaves", kOp, leaves);
  return check_grouped(kOp, "out", out, "inp", inp, w, out.dtype, rows);
}

GroupedShape check_grouped_matmul_backward_input(const Tensor& dinp, const Tensor& dout,
                                                 const Tensor& w, const ExpertRows& rows,
                                                 int leaves) {
  constexpr const char* kOp = "grouped_matmul_backward_input";
  CHECK(leaves >= 1, "{}: {} leaves", kOp, leaves);
  return check_grouped(kOp, "dout", dout, "dinp", dinp, w, dout.dtype, rows);
}

GroupedShape check_grouped_matmul_backward_weight(const Tensor& dw, const Tensor& dout,
                                                  const Tensor& inp, const ExpertRows& rows) {
  return check_grouped("grouped_matmul_backward_weight", "dout", dout, "inp", inp, dw,
                       wide(dout.dtype), rows);
}

ExpertShape check_combine_forward(const Tensor& out, const Tensor& y, const ExpertRows& rows,
                                  const Tensor& expert, const Tensor& weight) {
  constexpr const char* kOp = "combine_forward";
  const ExpertShape s = check_tokens(kOp, rows, "out", out, "y", y);
  check_float(kOp, "y", y.dtype);
  CHECK(out.dtype == y.dtype || out.dtype == wide(y.dtype), "{}: out has the wrong dtype", kOp);
  check(kOp, {{"expert", expert, Dtype::I32, rows.row.shape}});
  if (weight) check(kOp, {{"weight", weight, wide(y.dtype), rows.row.shape}});
  return s;
}

ExpertShape check_combine_backward(const Tensor& dy, const Tensor& dweight, const Tensor& dout,
                                   const Tensor& y, const ExpertRows& rows, const Tensor& weight) {
  constexpr const char* kOp = "combine_backward";
  const ExpertShape s = check_tokens(kOp, rows, "dout", dout, "y", y);
  check(kOp, {{"y", y, dout.dtype, y.shape},
              {"dy", dy, dout.dtype, y.shape},
              {"dweight", dweight, wide(dout.dtype), rows.row.shape},
              {"weight", weight, wide(dout.dtype), rows.row.shape}});
  return s;
}

}  // namespace ladder
