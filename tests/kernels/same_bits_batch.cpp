// Sums over the batch: any legal cut into micro-batches gives the bits of one call.
#include <array>
#include <bit>
#include <cstring>
#include <functional>
#include <span>

#include "tests/kernels/same_bits.h"

namespace ladder::test {
namespace {

/// An operation on sequences [begin, begin + count) of a batch.
struct BatchOp {
  const char* name;
  std::vector<Shape> shapes;  ///< of its outputs: first activations, then sums and statistics
  std::function<void(std::span<const Tensor> out, int64_t begin, int64_t count, Into)> run;
  size_t activations = 0;  ///< how many of the outputs have the dtype of the activations
};

class SameBitsBatch : public SameBits {
 protected:
  const Dtype dtype = GetParam().dtype;

  /// Random numbers of many sizes: sums of few bits each would be exact, and so in any order.
  Tensor spread(const Shape& shape) {
    const Tensor x = box.random(shape);
    for (int64_t i = 0; i < x.size(); ++i)
      set(x, i, std::ldexp(at(x, i), static_cast<int>(i % 23)));
    return x;
  }

  /// The operations that sum parameter gradients over the batch.
  std::vector<BatchOp> sums(int64_t B, int64_t T, int64_t C = 37, int64_t N = 45) {
    const int64_t V = 7, P = T + 1;
    const Tensor x = box.random({B, T, C}), d = spread({B, T, C}), e = spread({B, T, N});
    const Tensor mean = box.random(wide(dtype), {B, T});
    const Tensor rstd = box.random(wide(dtype), {B, T}, 0.5, 2);
    const Tensor tokens = box.tokens({B, T}, V);
    return {
        {.name = "embed",
         .shapes = {{V, C}, {P, C}},
         .run =
             [=, this](auto out, int64_t b, int64_t n, Into into) {
               k.embed_backward(ctx, out[0], out[1], d.slice(b, n), tokens.slice(b, n), into);
             }},
        {.name = "norm",
         .shapes = {{C}, {C}},
         .run =
             [=, this](auto out, int64_t b, int64_t n, Into into) {
               k.norm_backward_weight(ctx, out[0], out[1], d.slice(b, n), x.slice(b, n),
                                      mean.slice(b, n), rstd.slice(b, n), into);
             }},
        {.name = "words alone",
         .shapes = {{V, C}},
         .run =
             [=, this](auto out, int64_t b, int64_t n, Into into) {
               k.embed_backward(ctx, out[0], {}, d.slice(b, n), tokens.slice(b, n), into);
             }},
        {.name = "rms",
         .shapes = {{C}},
         .run =
             [=, this](auto out, int64_t b, int64_t n, Into into) {
               k.norm_backward_weight(ctx, out[0], {}, d.slice(b, n), x.slice(b, n), {},
                                      rstd.slice(b, n), into);
             }},
        {.name = "matmul",
         .shapes = {{N, C}},
         .run =
             [=, this](auto out, int64_t b, int64_t n, Into into) {
               k.matmul_backward_weight(ctx, out[0], e.slice(b, n), x.slice(b, n), into);
             }},
        {.name = "bias",
         .shapes = {{N}},
         .run = [=, this](auto out, int64_t b, int64_t n,
                          Into into) { k.bias_backward(ctx, out[0], e.slice(b, n), into); }},
    };
  }

  std::vector<Tensor> buffers(const BatchOp& op) {
    std::vector<Tensor> out;
    for (const Shape& shape : op.shapes)
      out.push_back(box.empty(out.size() < op.activations ? dtype : wide(dtype), shape));
    return out;
  }

  /// Even micro-batches write, odd ones add; then levels merge. The tree of docs/same_bits.md.
  std::vector<Tensor> tree(const BatchOp& op, int64_t begin, int64_t count, int64_t micro) {
    const int64_t steps = count / micro;
    if (steps <= 2) {
      std::vector<Tensor> out = buffers(op);
      op.run(out, begin, micro, Into::Write);
      if (steps == 2) op.run(out, begin + micro, micro, Into::Add);
      return out;
    }
    const int64_t left = micro * static_cast<int64_t>(std::bit_floor(uint64_t(steps - 1)));
    std::vector<Tensor> out = tree(op, begin, left, micro);
    const std::vector<Tensor> right = tree(op, begin + left, count - left, micro);
    for (size_t i = 0; i < out.size(); ++i) k.add(ctx, out[i], out[i], right[i]);
    return out;
  }

  std::vector<Tensor> running(const BatchOp& op, int64_t B, int64_t micro) {
    std::vector<Tensor> out = buffers(op);
    for (int64_t b = 0; b < B; b += micro) op.run(out, b, micro, b ? Into::Add : Into::Write);
    return out;
  }

  /// The forward operations and input gradients: nothing is summed over the batch.
  std::vector<BatchOp> rows(int64_t B, int64_t T);
};

TEST_P(SameBitsBatch, AnyMicroBatchGivesTheBitsOfOneCall) {
  for (const auto& [B, T, C, N] :
       {std::array{4, 1, 37, 45}, std::array{5, 5, 37, 45}, std::array{8, 16, 37, 45},
        std::array{12, 3, 16, 64}, std::array{8, 64, 200, 130}})
    for (const BatchOp& op : sums(B, T, C, N)) {
      box.set_threads(1);
      const std::vector<Tensor> whole = tree(op, 0, B, B);
      use_threads();
      for (const int micro : {1, 2, 4, B}) {
        if (B % micro != 0) continue;
        const std::vector<Tensor> parts = tree(op, 0, B, micro);
        for (size_t i = 0; i < whole.size(); ++i)
          EXPECT_TRUE(same_bits(parts[i], whole[i]))
              << op.name << " output " << i << ", B " << B << " T " << T << " micro " << micro;
      }
    }
}

TEST_P(SameBitsBatch, NegativeControlARunningSumDiffers) {
  const int64_t B = 8;
  for (const BatchOp& op : sums(B, 16)) {
    const std::vector<Tensor> whole = tree(op, 0, B, B), parts = running(op, B, 1);
    for (size_t i = 0; i < whole.size(); ++i) {
      EXPECT_FALSE(same_bits(parts[i], whole[i])) << op.name;
      EXPECT_LT(relative_error(parts[i], whole[i]), 1e-5) << op.name;
    }
  }
}

TEST_P(SameBitsBatch, AddFinishesItsSumFirst) {
  for (const BatchOp& op : sums(5, 9)) {
    const std::vector<Tensor> sum = tree(op, 0, 5, 5);
    for (const double start : {0.0, 0.3}) {
      std::vector<Tensor> got, want;
      for (const Tensor& s : sum) {
        got.push_back(box.filled(s.dtype, s.shape, start));
        want.push_back(box.filled(s.dtype, s.shape, start));
        k.add(ctx, want.back(), want.back(), s);
      }
      op.run(got, 0, 5, Into::Add);
      for (size_t i = 0; i < sum.size(); ++i) EXPECT_TRUE(same_bits(got[i], want[i])) << op.name;
    }
  }
}

std::vector<BatchOp> SameBitsBatch::rows(int64_t B, int64_t T) {
  const int64_t NH = 3, C = 12, N = 45, V = 21;
  const Tensor x = box.random({B, T, C}), d = box.random({B, T, C}), bias = box.random({C});
  const Tensor w = box.random({N, C}), e = box.random({B, T, N}), bias_n = box.random({N});
  const Tensor mean = box.random(wide(dtype), {B, T});
  const Tensor rstd = box.random(wide(dtype), {B, T}, 0.5, 2);
  const Tensor lse = box.random(wide(dtype), {B, NH, T}, 3, 4);
  const Tensor qkv = box.random({B, T, 3 * C}), gates = box.random({B, T, 2 * C});
  const Tensor angles = box.angles(T, C / NH);
  const Tensor wte = box.random({V, C}), wpe = box.random({T, C});
  const Tensor logits = box.random({B, T, V}), tokens = box.tokens({B, T}, V - 2);
  const auto one = [](const char* name, Shape shape, auto run) {
    return BatchOp{
        name, {shape}, [=](auto out, int64_t b, int64_t n, Into) { run(out[0], b, n); }, 1};
  };
  return {
      one("embed_forward", {B, T, C},
          [=, this](Tensor out, int64_t b, int64_t n) {
            k.embed_forward(ctx, out, tokens.slice(b, n), wte, wpe);
          }),
      {"norm_forward",
       {{B, T, C}, {B, T}, {B, T}},
       [=, this](auto out, int64_t b, int64_t n, Into) {
         k.norm_forward(ctx, out[0], out[1], out[2], x.slice(b, n), bias, bias);
       },
       1},
      one("norm_backward_input", {B, T, C},
          [=, this](Tensor out, int64_t b, int64_t n) {
            k.norm_backward_input(ctx, out, d.slice(b, n), x.slice(b, n), bias, mean.slice(b, n),
                                  rstd.slice(b, n));
          }),
      {"rms_forward",
       {{B, T, C}, {B, T}},
       [=, this](auto out, int64_t b, int64_t n, Into) {
         k.norm_forward(ctx, out[0], {}, out[1], x.slice(b, n), bias, {});
       },
       1},
      one("rms_backward_input", {B, T, C},
          [=, this](Tensor out, int64_t b, int64_t n) {
            k.norm_backward_input(ctx, out, d.slice(b, n), x.slice(b, n), bias, {},
                                  rstd.slice(b, n));
          }),
      one("swiglu_forward", {B, T, C / 2},
          [=, this](Tensor out, int64_t b, int64_t n) {
            k.swiglu_forward(ctx, out, x.slice(b, n));
          }),
      one("swiglu_backward", {B, T, 2 * C},
          [=, this](Tensor out, int64_t b, int64_t n) {
            k.swiglu_backward(ctx, out, d.slice(b, n), gates.slice(b, n));
          }),
      one("rope", {B, T, 3 * C},
          [=, this](Tensor out, int64_t b, int64_t n) {
            std::memcpy(out.ptr, qkv.slice(b, n).ptr, static_cast<size_t>(out.bytes()));
            k.rope(ctx, out, angles, NH, false);
          }),
      one("matmul_forward", {B, T, N},
          [=, this](Tensor out, int64_t b, int64_t n) {
            k.matmul_forward(ctx, out, x.slice(b, n), w, bias_n, kLeaves);
          }),
      one("matmul_backward_input", {B, T, C},
          [=, this](Tensor out, int64_t b, int64_t n) {
            k.matmul_backward_input(ctx, out, e.slice(b, n), w, kLeaves);
          }),
      {"attention_forward",
       {{B, T, C}, {B, NH, T}},
       [=, this](auto out, int64_t b, int64_t n, Into) {
         k.attention_forward(ctx, out[0], out[1], qkv.slice(b, n));
       },
       1},
      one("attention_backward", {B, T, 3 * C},
          [=, this](Tensor out, int64_t b, int64_t n) {
            k.attention_backward(ctx, out, d.slice(b, n), qkv.slice(b, n), x.slice(b, n),
                                 lse.slice(b, n));
          }),
      one("residual_forward", {B, T, C},
          [=, this](Tensor out, int64_t b, int64_t n) {
            k.residual_forward(ctx, out, x.slice(b, n), d.slice(b, n), bias);
          }),
      {"cross_entropy",
       {{B, T, V}, {B}},
       [=, this](auto out, int64_t b, int64_t n, Into) {
         k.cross_entropy(ctx, out[1], out[0], logits.slice(b, n), tokens.slice(b, n), V - 2, 0.1F);
       },
       1},
  };
}

TEST_P(SameBitsBatch, ASequenceDoesNotFeelItsNeighbors) {
  for (const int64_t T : {1, 5, 16})
    for (const BatchOp& op : rows(5, T)) {
      box.set_threads(1);
      const std::vector<Tensor> whole = tree(op, 0, 5, 5);
      use_threads();
      for (const int64_t cut : {1, 2, 4}) {
        const std::vector<Tensor> parts = buffers(op);
        std::vector<Tensor> head, tail;
        for (const Tensor& part : parts) {
          head.push_back(part.first(cut));
          tail.push_back(part.slice(cut, 5 - cut));
        }
        op.run(head, 0, cut, Into::Write);
        op.run(tail, cut, 5 - cut, Into::Write);
        for (size_t i = 0; i < whole.size(); ++i)
          EXPECT_TRUE(same_bits(parts[i], whole[i])) << op.name << " T " << T << " cut " << cut;
      }
    }
}

INSTANTIATE_TEST_SUITE_P(Tables, SameBitsBatch, ::testing::ValuesIn(tables()), table_name);
INSTANTIATE_TEST_SUITE_P(Narrow, SameBitsBatch,
                         ::testing::Values(Table{ref_kernels, 1, Dtype::BF16},
                                           Table{cpu_kernels, 1, Dtype::BF16},
                                           Table{cpu_kernels, 3, Dtype::BF16}),
                         table_name);

}  // namespace
}  // namespace ladder::test
