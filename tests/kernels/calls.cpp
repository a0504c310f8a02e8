#include "tests/kernels/calls.h"

#include <cmath>
#include <cstring>
#include <type_traits>
#include <utility>

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

/// Before an operation in place: `to` becomes the first operand.
void copy_to(const Tensor& to, const Run& r) {
  const Tensor& from = r.in[0];
  if (r.ctx.device) return r.ctx.device->copy(to.ptr, from.ptr, to.bytes());
  std::memcpy(to.ptr, from.ptr, static_cast<size_t>(to.bytes()));
}

/// The call of an operation with all its tensors, in the order of its parameters, and with its
/// other parameters. An operation that sums over sequences also gets the Into of the run.
template <class... P, class... Others>
Call row(const char* name, void (*Kernels::*operation)(const Ctx&, P...), std::vector<Output> out,
         std::vector<Operand> in, Others... others) {
  constexpr size_t kTensors = (std::is_same_v<P, Tensor> + ...);
  const auto run = [=]<size_t... I>(std::index_sequence<I...>, const Run& r) {
    const auto tensor = [&r](size_t i) {
      return i < r.out.size() ? r.out[i] : r.in[i - r.out.size()];
    };
    if constexpr (kTensors + sizeof...(others) < sizeof...(P))
      (r.k.*operation)(r.ctx, tensor(I)..., others..., r.into);
    else
      (r.k.*operation)(r.ctx, tensor(I)..., others...);
  };
  CHECK(out.size() + in.size() == kTensors, "{} takes {} tensors", name, kTensors);
  return {name, std::move(out), std::move(in),
          [=](const Run& r) { run(std::make_index_sequence<kTensors>{}, r); }};
}

/// Draws the operands for the calls of one batch.
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

/// What calls_of_rows() reads.
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

/// And what the other calls read.
struct Operands : RowOperands {
  Operands(Sandbox& box, const CallSizes& s, Dtype dtype) : RowOperands(box, s, dtype) {
    if (B * T > 1) targets.x.data<int32_t>()[0] = kIgnore;
  }

  int64_t NH = C % 3 == 0 ? 3 : 1, V = 11, P = T + 2, vocab = N - N / 9;
  Operand e = draw.act(N), logits = draw.act(N, -5, 5), qkv = draw.act(3 * C);
  Operand cache = draw.act(2 * C);
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
  using K = Kernels;
  const Operand none{};
  const Output gates{{o.B, o.T, 2 * o.C}, Kind::Act};
  return {
      row("norm_forward", &K::norm_forward, {o.like_x, o.rows, o.rows}, {o.x, o.bias, o.bias}),
      {"norm_forward, RMSNorm",
       {o.like_x, o.rows},
       {o.x, o.bias},
       [](const Run& r) { r.k.norm_forward(r.ctx, r.out[0], {}, r.out[1], r.in[0], r.in[1], {}); }},
      row("norm_backward_input", &K::norm_backward_input, {o.like_x},
          {o.d, o.x, o.bias, o.mean, o.rstd}),
      row("norm_backward_input, RMSNorm", &K::norm_backward_input, {o.like_x},
          {o.d, o.x, o.bias, none, o.rstd}),
      row("gelu_forward", &K::gelu_forward, {o.like_x}, {o.x}),
      row("gelu_backward", &K::gelu_backward, {o.like_x}, {o.d, o.x}),
      row("swiglu_forward", &K::swiglu_forward, {o.like_x}, {o.gates}),
      row("swiglu_backward", &K::swiglu_backward, {gates}, {o.d, o.gates}),
      row("residual_forward", &K::residual_forward, {o.like_x}, {o.x, o.d, o.bias}),
      row("residual_forward without bias", &K::residual_forward, {o.like_x}, {o.x, o.d, none}),
      row("add", &K::add, {o.like_x}, {o.x, o.d}),
      {"scale",
       {o.like_x},
       {o.x},
       [](const Run& r) {
         copy_to(r.out[0], r);
         r.k.scale(r.ctx, r.out[0], 0.7F);
       }},
  };
}

/// Each sequence is a text in two pieces: the first half, and the rest.
Call cached(const Operands& o) {
  return {
      "attention_cached", {o.like_x}, {o.qkv, o.cache}, [NH = o.NH](const Run& r) {
        const auto text = [](const Tensor& x, int64_t b) {
          return x.slice(b, 1).view({x.dim(1), x.dim(2)});
        };
        for (int64_t b = 0; b < r.in[0].dim(0); ++b) {
          const int64_t T = r.in[0].dim(1);
          for (const auto& [first, m] : {std::pair<int64_t, int64_t>{0, T / 2}, {T / 2, T - T / 2}})
            if (m > 0)
              r.k.attention_cached(r.ctx, text(r.out[0], b).slice(first, m),
                                   text(r.in[0], b).slice(first, m), text(r.in[1], b), NH,
                                   {.T = 2 * T, .first = first});
        }
      }};
}

/// Calls that read several rows or weights, but sum nothing over the batch.
std::vector<Call> of_sequences(const Operands& o) {
  using K = Kernels;
  const Operand none{};
  const Output to_n{{o.B, o.T, o.N}, Kind::Act}, to_qkv{{o.B, o.T, 3 * o.C}, Kind::Act};
  const Output of_heads{{o.B, o.NH, o.T}, Kind::Stat}, losses{{o.B}, Kind::Stat};
  const auto rope = [&](const char* name, bool back) -> Call {
    return {name, {{{o.B, o.T, 16 * o.C}, Kind::Act}}, {o.turned, o.angles}, [back](const Run& r) {
              copy_to(r.out[0], r);
              r.k.rope(r.ctx, r.out[0], r.in[1], 4, back);
            }};
  };
  return {
      row("embed_forward", &K::embed_forward, {o.like_x}, {o.tokens, o.wte, o.wpe}),
      row("embed_forward without positions", &K::embed_forward, {o.like_x},
          {o.tokens, o.wte, none}),
      row("matmul_forward", &K::matmul_forward, {to_n}, {o.x, o.w, o.bias_n}, kLeaves),
      row("matmul_backward_input", &K::matmul_backward_input, {o.like_x}, {o.e, o.w}, kLeaves),
      row("attention_forward", &K::attention_forward, {o.like_x, of_heads}, {o.qkv}),
      row("attention_backward", &K::attention_backward, {to_qkv}, {o.d, o.qkv, o.x, o.lse}),
      cached(o),
      rope("rope", false),
      rope("rope, back", true),
      row("cross_entropy", &K::cross_entropy, {losses, to_n}, {o.logits, o.targets}, o.vocab, 0.3F),
      {"cross_entropy in place",
       {losses, to_n},
       {o.logits, o.targets},
       [vocab = o.vocab](const Run& r) {
         copy_to(r.out[1], r);
         r.k.cross_entropy(r.ctx, r.out[0], r.out[1], r.out[1], r.in[1], vocab, 0.3F);
       }},
      row("softmax_loss", &K::softmax_loss, {losses, to_n},
          {o.logits, o.mean, o.rstd, o.x_target, o.targets}, o.vocab, 0.3F),
  };
}

/// Gradients of parameters, summed over the batch.
std::vector<Call> of_batches(const Operands& o) {
  using K = Kernels;
  const Output of_c{{o.C}, Kind::Sum}, of_n{{o.N}, Kind::Sum}, words{{o.V, o.C}, Kind::Sum};
  const Output places{{o.P, o.C}, Kind::Sum}, of_w{{o.N, o.C}, Kind::Sum};
  return {
      row("embed_backward", &K::embed_backward, {words, places}, {o.loud_d, o.tokens}),
      {"embed_backward without positions",
       {words},
       {o.loud_d, o.tokens},
       [](const Run& r) { r.k.embed_backward(r.ctx, r.out[0], {}, r.in[0], r.in[1], r.into); }},
      row("norm_backward_weight", &K::norm_backward_weight, {of_c, of_c},
          {o.loud_d, o.x, o.mean, o.rstd}),
      {"norm_backward_weight, RMSNorm",
       {of_c},
       {o.loud_d, o.x, o.rstd},
       [](const Run& r) {
         r.k.norm_backward_weight(r.ctx, r.out[0], {}, r.in[0], r.in[1], {}, r.in[2], r.into);
       }},
      row("matmul_backward_weight", &K::matmul_backward_weight, {of_w}, {o.loud_e, o.x}),
      row("bias_backward", &K::bias_backward, {of_n}, {o.loud_e}),
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
