// Batches: any legal cut into micro-batches gives the bits of one call, whatever the number of
// threads, and 16-bit outputs are those of FP32 rounded once.
#include <array>
#include <bit>

#include "tests/kernels/calls.h"
#include "tests/kernels/same_bits.h"

namespace ladder::test {
namespace {

class SameBitsBatch : public SameBits {
 protected:
  std::vector<Call> all(const CallSizes& sizes) { return calls(box, sizes, dtype); }
  std::vector<Call> sums(const CallSizes& sizes) {
    std::vector<Call> some = all(sizes);
    std::erase_if(some, [](const Call& call) { return !call.sums(); });
    return some;
  }

  /// The tree of docs/same_bits.md: even micro-batches write, odd ones add, then levels merge.
  std::vector<Tensor> tree(const Call& call, int64_t begin, int64_t count, int64_t micro) {
    const int64_t steps = count / micro;
    if (steps <= 2) {
      std::vector<Tensor> out = call.outputs(box, dtype);
      call.on(k, ctx, out, begin, micro, Into::Write);
      if (steps == 2) call.on(k, ctx, out, begin + micro, micro, Into::Add);
      return out;
    }
    const int64_t left = micro * static_cast<int64_t>(std::bit_floor(uint64_t(steps - 1)));
    std::vector<Tensor> out = tree(call, begin, left, micro);
    const std::vector<Tensor> right = tree(call, begin + left, count - left, micro);
    for (size_t i = 0; i < out.size(); ++i) k.add(ctx, out[i], out[i], right[i]);
    return out;
  }

  static void expect_same(const std::vector<Tensor>& got, const std::vector<Tensor>& want,
                          const std::string& what) {
    for (size_t i = 0; i < want.size(); ++i)
      EXPECT_TRUE(same_bits(got[i], want[i])) << what << ", output " << i;
  }
};

TEST_P(SameBitsBatch, AnyMicroBatchGivesTheBitsOfOneCall) {
  for (const CallSizes& s : {CallSizes{4, 1}, {5, 5}, {8, 16}, {12, 3, 16, 64}, {8, 64, 200, 130}})
    for (const Call& call : sums(s)) {
      box.set_threads(1);
      const std::vector<Tensor> whole = tree(call, 0, s.B, s.B);
      use_threads();
      for (const int64_t micro : {int64_t{1}, int64_t{2}, int64_t{4}, s.B})
        if (s.B % micro == 0) expect_same(tree(call, 0, s.B, micro), whole, call.name);
    }
}

TEST_P(SameBitsBatch, NegativeControlARunningSumDiffers) {
  for (const Call& call : sums({8, 16})) {
    const std::vector<Tensor> whole = tree(call, 0, 8, 8), parts = call.outputs(box, dtype);
    for (int64_t b = 0; b < 8; ++b) call.on(k, ctx, parts, b, 1, b > 0 ? Into::Add : Into::Write);
    for (size_t i = 0; i < whole.size(); ++i) {
      EXPECT_FALSE(same_bits(parts[i], whole[i])) << call.name;
      EXPECT_LT(relative_error(parts[i], whole[i]), 1e-5) << call.name;
    }
  }
}

TEST_P(SameBitsBatch, AddFinishesItsSumFirst) {
  for (const Call& call : sums({5, 9})) {
    const std::vector<Tensor> sum = tree(call, 0, 5, 5);
    for (const double start : {0.0, 0.3}) {
      std::vector<Tensor> got, want;
      for (const Tensor& s : sum) {
        got.push_back(box.filled(s.dtype, s.shape, start));
        want.push_back(box.filled(s.dtype, s.shape, start));
        k.add(ctx, want.back(), want.back(), s);
      }
      call.on(k, ctx, got, 0, 5, Into::Add);
      expect_same(got, want, call.name);
    }
  }
}

TEST_P(SameBitsBatch, ASequenceDoesNotFeelItsNeighbors) {
  for (const int64_t T : {1, 5, 16})
    for (const Call& call : all({5, T, 12})) {
      if (call.sums()) continue;
      box.set_threads(1);
      const std::vector<Tensor> whole = tree(call, 0, 5, 5);
      use_threads();
      for (const int64_t cut : {1, 2, 4}) {
        const std::vector<Tensor> parts = call.outputs(box, dtype);
        std::vector<Tensor> head, tail;
        for (const Tensor& part : parts) {
          head.push_back(part.first(cut));
          tail.push_back(part.slice(cut, 5 - cut));
        }
        call.on(k, ctx, head, 0, cut);
        call.on(k, ctx, tail, cut, 5 - cut);
        expect_same(parts, whole, call.name);
      }
    }
}

class SameBitsNarrow : public SameBitsBatch {};

// 16-bit operands are widened, the operation is that of FP32, and what it stores is rounded once.
// Attention rounds its weights, too. Products of BF16 in `cpu` may have an order of their own:
// cpu_products.cpp.
TEST_P(SameBitsNarrow, OutputsAreThoseOfFp32RoundedOnce) {
  const Format& format = format_of(dtype);
  use_threads();
  for (const CallSizes& s : {CallSizes{1, 1, 1}, {3, 5, 7}, {2, 9, 17}, {12, 16, 130}})
    for (const Call& call : all(s)) {
      const std::string name = call.name;
      const bool in_pairs =
          std::string(k.name) == "cpu" && dtype == Dtype::BF16 && name.starts_with("matmul");
      if (name.starts_with("attention") || in_pairs) continue;
      const Call wide = call.in_dtype(box, Dtype::F32);
      const std::vector<Tensor> got = call.outputs(box, dtype);
      const std::vector<Tensor> want = wide.outputs(box, Dtype::F32);
      call.on(k, ctx, got, 0, s.B);
      wide.on(k, ctx, want, 0, s.B);
      for (size_t o = 0; o < got.size(); ++o)
        for (int64_t i = 0; i < got[o].size(); ++i) {
          const auto value = static_cast<float>(at(want[o], i));
          const uint32_t code = narrow(format, value, overflow_of(dtype));
          const double rounded = is_narrow(got[o].dtype) ? widen(format, code) : value;
          ASSERT_EQ(at(got[o], i), rounded) << call.name << " output " << o << ", element " << i;
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Tables, SameBitsBatch, ::testing::ValuesIn(tables_of_all_dtypes()),
                         table_name);
INSTANTIATE_TEST_SUITE_P(Tables, SameBitsNarrow,
                         ::testing::Values(Table{ref_kernels, 1, Dtype::BF16},
                                           Table{cpu_kernels, 2, Dtype::BF16},
                                           Table{ref_kernels, 1, Dtype::F16},
                                           Table{cpu_kernels, 2, Dtype::F16}),
                         table_name);

}  // namespace
}  // namespace ladder::test
