#include "tests/kernels/calls.h"

#include <cmath>
#include <cstring>
#include <tuple>

namespace ladder::test {

std::vector<Tensor> Call::outputs(Sandbox& box, Dtype dtype) const {
  std::vector<Tensor> all;
  for (const Output& o : out)
    all.push_back(box.empty(o.kind == Kind::Act ? dtype : wide(dtype), o.shape));
  return all;
}

void Call::on(const Kernels& k, const Ctx& ctx, std::span<const Tensor> to, int64_t begin,
              int64_t count, Into into) const {
  std::vector<Tensor> operands;
  for (const Operand& o : in)
    operands.push_back(o.x && is_of_sequences(o.kind) ? o.x.slice(begin, count) : o.x);
  run({k, ctx, to, operands, into});
}

Call Call::in_dtype(Sandbox& box, Dtype dtype) const {
  Call other = *this;
  for (Operand& o : other.in) {
    if (!o.x || (o.kind != Kind::Act && o.kind != Kind::Weight)) continue;
    const Tensor to = box.empty(dtype, o.x.shape);
    for (int64_t i = 0; i < to.size(); ++i) set(to, i, at(o.x, i));
    o.x = to;
  }
  return other;
}

namespace {

void copy_to(const Run& r) {
  const Tensor &to = r.out[0], &from = r.in[0];
  if (r.ctx.device) return r.ctx.device->copy(to.ptr, from.ptr, to.bytes());
  std::memcpy(to.ptr, from.ptr, static_cast<size_t>(to.bytes()));
}

/// What is drawn for the calls of one batch.
struct Draw {
  Sandbox& box;
  int64_t B, T;
  Dtype dtype;

  Operand act(int64_t n, double low = -1, double high = 1) const {
    return {box.random({B, T, n}, low, high), Kind::Act};
  }
  Operand loud(int64_t n) const { return {spread(box, {B, T, n}), Kind::Act}; }
  Operand stat(const Shape& shape, double low, double high) const {
    return {box.random(wide(dtype), shape, low, high), Kind::Stat};
  }
  Operand weight(const Shape& shape) const { return {box.random(shape), Kind::Weight}; }
};

/// What the calls of rows read.
struct RowOperands {
  RowOperands(Sandbox& box, const CallSizes& s, Dtype dtype)
      : draw{box, s.B, s.T, dtype}, C(s.C), N(s.N) {}

  Draw draw;
  int64_t C, N, B = draw.B, T = draw.T;
  Operand x = draw.act(C, -1, 3), d = draw.act(C), gates = draw.act(2 * C, -6, 6);
  Operand bias = draw.weight({C});
  Operand mean = draw.stat({B, T}, -1, 1), rstd = draw.stat({B, T}, 0.5, 2);
  Output like_x{{B, T, C}, Kind::Act}, rows{{B, T}, Kind::Stat};
};

/// And what the others read.
struct Operands : RowOperands {
  Operands(Sandbox& box, const CallSizes& s, Dtype dtype) : RowOperands(box, s, dtype) {
    if (B * T > 1) targets.x.data<int32_t>()[0] = kIgnore;
  }

  int64_t NH = C % 3 == 0 ? 3 : 1, V = 11, P = T + 2, vocab = N - N / 9;
  Operand e = draw.act(N), logits = draw.act(N, -5, 5), qkv = draw.act(3 * C);
  Operand turned = draw.act(16 * C), loud_d = draw.loud(C), loud_e = draw.loud(N);
  Operand lse = draw.stat({B, NH, T}, 3, 4);
  Operand tokens{draw.box.tokens({B, T}, V), Kind::Index};
  Operand targets{draw.box.tokens({B, T}, vocab), Kind::Index};
  Operand w = draw.weight({N, C}), bias_n = draw.weight({N});
  Operand wte = draw.weight({V, C}), wpe = draw.weight({P, C});
  Operand angles{draw.box.angles(T, 2 * C), Kind::Constant};
  Operand x_target = draw.stat({B, T}, -5, 5);
};

std::vector<Call> of_rows(const RowOperands& o) {
  const auto [B, T, C] = std::tuple{o.B, o.T, o.C};
  return {
      {"norm_forward",
       {o.like_x, o.rows, o.rows},
       {o.x, o.bias},
       [](const Run& r) {
         r.k.norm_forward(r.ctx, r.out[0], r.out[1], r.out[2], r.in[0], r.in[1], r.in[1]);
       }},
      {"norm_forward, RMSNorm",
       {o.like_x, o.rows},
       {o.x, o.bias},
       [](const Run& r) { r.k.norm_forward(r.ctx, r.out[0], {}, r.out[1], r.in[0], r.in[1], {}); }},
      {"norm_backward_input",
       {o.like_x},
       {o.d, o.x, o.bias, o.mean, o.rstd},
       [](const Run& r) {
         r.k.norm_backward_input(r.ctx, r.out[0], r.in[0], r.in[1], r.in[2], r.in[3], r.in[4]);
       }},
      {"norm_backward_input, RMSNorm",
       {o.like_x},
       {o.d, o.x, o.bias, o.rstd},
       [](const Run& r) {
         r.k.norm_backward_input(r.ctx, r.out[0], r.in[0], r.in[1], r.in[2], {}, r.in[3]);
       }},
      {"gelu_forward",
       {o.like_x},
       {o.x},
       [](const Run& r) { r.k.gelu_forward(r.ctx, r.out[0], r.in[0]); }},
      {"gelu_backward",
       {o.like_x},
       {o.d, o.x},
       [](const Run& r) { r.k.gelu_backward(r.ctx, r.out[0], r.in[0], r.in[1]); }},
      {"swiglu_forward",
       {o.like_x},
       {o.gates},
       [](const Run& r) { r.k.swiglu_forward(r.ctx, r.out[0], r.in[0]); }},
      {"swiglu_backward",
       {{{B, T, 2 * C}, Kind::Act}},
       {o.d, o.gates},
       [](const Run& r) { r.k.swiglu_backward(r.ctx, r.out[0], r.in[0], r.in[1]); }},
      {"residual_forward",
       {o.like_x},
       {o.x, o.d, o.bias},
       [](const Run& r) { r.k.residual_forward(r.ctx, r.out[0], r.in[0], r.in[1], r.in[2]); }},
      {"residual_forward without bias",
       {o.like_x},
       {o.x, o.d},
       [](const Run& r) { r.k.residual_forward(r.ctx, r.out[0], r.in[0], r.in[1], {}); }},
      {"add",
       {o.like_x},
       {o.x, o.d},
       [](const Run& r) { r.k.add(r.ctx, r.out[0], r.in[0], r.in[1]); }},
      {"scale",
       {o.like_x},
       {o.x},
       [](const Run& r) {
         copy_to(r);
         r.k.scale(r.ctx, r.out[0], 0.7F);
       }},
  };
}

/// Of several rows or weights, but nothing is summed over the batch.
std::vector<Call> of_sequences(const Operands& o) {
  const auto [B, T, C, N] = std::tuple{o.B, o.T, o.C, o.N};
  const Output to_n{{B, T, N}, Kind::Act}, of_heads{{B, o.NH, T}, Kind::Stat};
  const Output losses{{B}, Kind::Stat};
  const int64_t vocab = o.vocab;
  return {
      {"embed_forward",
       {o.like_x},
       {o.tokens, o.wte, o.wpe},
       [](const Run& r) { r.k.embed_forward(r.ctx, r.out[0], r.in[0], r.in[1], r.in[2]); }},
      {"embed_forward without positions",
       {o.like_x},
       {o.tokens, o.wte},
       [](const Run& r) { r.k.embed_forward(r.ctx, r.out[0], r.in[0], r.in[1], {}); }},
      {"matmul_forward",
       {to_n},
       {o.x, o.w, o.bias_n},
       [](const Run& r) {
         r.k.matmul_forward(r.ctx, r.out[0], r.in[0], r.in[1], r.in[2], kLeaves);
       }},
      {"matmul_backward_input",
       {o.like_x},
       {o.e, o.w},
       [](const Run& r) { r.k.matmul_backward_input(r.ctx, r.out[0], r.in[0], r.in[1], kLeaves); }},
      {"attention_forward",
       {o.like_x, of_heads},
       {o.qkv},
       [](const Run& r) { r.k.attention_forward(r.ctx, r.out[0], r.out[1], r.in[0]); },
       false},
      {"attention_backward",
       {{{B, T, 3 * C}, Kind::Act}},
       {o.d, o.qkv, o.x, o.lse},
       [](const Run& r) {
         r.k.attention_backward(r.ctx, r.out[0], r.in[0], r.in[1], r.in[2], r.in[3]);
       },
       false},
      {"rope",
       {{{B, T, 16 * C}, Kind::Act}},
       {o.turned, o.angles},
       [](const Run& r) {
         copy_to(r);
         r.k.rope(r.ctx, r.out[0], r.in[1], 4, false);
       }},
      {"rope, back",
       {{{B, T, 16 * C}, Kind::Act}},
       {o.turned, o.angles},
       [](const Run& r) {
         copy_to(r);
         r.k.rope(r.ctx, r.out[0], r.in[1], 4, true);
       }},
      {"cross_entropy",
       {to_n, losses},
       {o.logits, o.targets},
       [vocab](const Run& r) {
         r.k.cross_entropy(r.ctx, r.out[1], r.out[0], r.in[0], r.in[1], vocab, 0.3F);
       }},
      {"cross_entropy in place",
       {to_n, losses},
       {o.logits, o.targets},
       [vocab](const Run& r) {
         copy_to(r);
         r.k.cross_entropy(r.ctx, r.out[1], r.out[0], r.out[0], r.in[1], vocab, 0.3F);
       }},
      {"softmax_loss",
       {to_n, losses},
       {o.logits, o.targets, o.mean, o.rstd, o.x_target},
       [vocab](const Run& r) {
         r.k.softmax_loss(r.ctx, r.out[1], r.out[0], r.in[0], r.in[2], r.in[3], r.in[4], r.in[1],
                          vocab, 0.3F);
       }},
  };
}

/// Gradients of parameters, summed over the batch.
std::vector<Call> of_batches(const Operands& o) {
  const Output of_c{{o.C}, Kind::Sum}, of_n{{o.N}, Kind::Sum}, words{{o.V, o.C}, Kind::Sum};
  return {
      {"embed_backward",
       {words, {{o.P, o.C}, Kind::Sum}},
       {o.loud_d, o.tokens},
       [](const Run& r) {
         r.k.embed_backward(r.ctx, r.out[0], r.out[1], r.in[0], r.in[1], r.into);
       }},
      {"embed_backward without positions",
       {words},
       {o.loud_d, o.tokens},
       [](const Run& r) { r.k.embed_backward(r.ctx, r.out[0], {}, r.in[0], r.in[1], r.into); }},
      {"norm_backward_weight",
       {of_c, of_c},
       {o.loud_d, o.x, o.mean, o.rstd},
       [](const Run& r) {
         r.k.norm_backward_weight(r.ctx, r.out[0], r.out[1], r.in[0], r.in[1], r.in[2], r.in[3],
                                  r.into);
       }},
      {"norm_backward_weight, RMSNorm",
       {of_c},
       {o.loud_d, o.x, o.rstd},
       [](const Run& r) {
         r.k.norm_backward_weight(r.ctx, r.out[0], {}, r.in[0], r.in[1], {}, r.in[2], r.into);
       }},
      {"matmul_backward_weight",
       {{{o.N, o.C}, Kind::Sum}},
       {o.loud_e, o.x},
       [](const Run& r) { r.k.matmul_backward_weight(r.ctx, r.out[0], r.in[0], r.in[1], r.into); }},
      {"bias_backward",
       {of_n},
       {o.loud_e},
       [](const Run& r) { r.k.bias_backward(r.ctx, r.out[0], r.in[0], r.into); }},
  };
}

}  // namespace

std::vector<Call> calls_of_rows(Sandbox& box, const CallSizes& sizes, Dtype dtype) {
  return of_rows({box, sizes, dtype});
}

std::vector<Call> calls(Sandbox& box, const CallSizes& sizes, Dtype dtype) {
  const Operands operands(box, sizes, dtype);
  std::vector<Call> all = of_rows(operands);
  for (const auto& more : {of_sequences(operands), of_batches(operands)})
    all.insert(all.end(), more.begin(), more.end());
  return all;
}

}  // namespace ladder::test
