// The ladder of attention on a GPU: each rung's time and rate, beside the rate of a large product.
//
//   bench_attention_ladder                      GPT-2 124M: 32 sequences of 1,024 tokens, 12 heads
//   bench_attention_ladder --batch 1 --seq-len 130 --heads 2 --calls 1
//
// Each rung is first held against the first one: within what BF16 rounds. Status 1 if one is wrong.
#include <algorithm>
#include <cmath>
#include <vector>

#include "bench/attention_ladder/ladder.h"
#include "bench/gpu.h"

namespace ladder::bench {
namespace {

struct Sizes {
  int64_t B = 32, T = 1024, NH = 12;
  int calls = 10;

  /// Two products of HS multiply-adds for each pair of a query and a key that it sees.
  double flops() const {
    return 4.0 * 64 * static_cast<double>(B * NH) * static_cast<double>(T * (T + 1) / 2);
  }
};

/// Of the length of the whole tensor: weights, slopes and results are each rounded to 8 bits.
constexpr double kMostError = 1e-2;

/// Seconds of a call, the best of three tries.
template <class Call>
double best_seconds(const Gpu& gpu, Call&& call, int calls) {
  call();
  double best = INFINITY;
  for (int i = 0; i < 3; ++i) best = std::min(best, seconds(gpu, call, calls));
  return best;
}

/// Distance from `want`, relative to its length; `want` is set by the first call. NaN counts.
double difference(std::vector<float>& want, const std::vector<float>& got) {
  if (want.empty()) want = got;
  double apart = 0, length = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    apart += std::pow(got[i] - want[i], 2);
    length += std::pow(want[i], 2);
  }
  return std::isfinite(apart) ? std::sqrt(apart / length) : INFINITY;
}

/// Whether all rungs compute the same.
bool run(const Sizes& s) {
  Gpu gpu;
  const Ctx& ctx = gpu.ctx();
  const Shape wide{s.B, s.T, 3 * s.NH * 64}, narrow{s.B, s.T, s.NH * 64};
  const Tensor qkv = gpu.half(wide), dout = gpu.half(narrow), out = gpu.half(narrow),
               lse = gpu.full({s.B, s.NH, s.T}), dqkv = gpu.half(wide);
  bool right = true;
  std::vector<float> want_out, want_dqkv;
  fmt::print("{:36}{:>12}{:>10}{:>13}{:>10}   of rung 1\n", "rung", "forward us", "TFLOP/s",
             "backward us", "TFLOP/s");
  for (const Rung& rung : rungs()) {
    const double ahead = best_seconds(
        gpu, [&] { rung.forward(ctx, out, lse, qkv); }, s.calls);
    double error = difference(want_out, gpu.read(out)), back = NAN;
    if (rung.backward) {
      back = best_seconds(
          gpu, [&] { rung.backward(ctx, dqkv, dout, qkv, out, lse); }, s.calls);
      error = std::max(error, difference(want_dqkv, gpu.read(dqkv)));
    }
    fmt::print("{:36}{:12.0f}{:10.1f}{:13.0f}{:10.1f}   {:.1e}\n", rung.name, ahead * 1e6,
               s.flops() / ahead * 1e-12, back * 1e6, 2.5 * s.flops() / back * 1e-12, error);
    right = right && error < kMostError;
  }
  return right;
}

}  // namespace
}  // namespace ladder::bench

int main(int argc, char** argv) {
  using namespace ladder::bench;
  Sizes sizes;
  CLI::App app("Attention's kernels, from the plainest to the fastest");
  app.add_option("--batch", sizes.B, "sequences")->check(CLI::Range(1, 1024));
  app.add_option("--seq-len", sizes.T, "tokens of a sequence")->check(CLI::Range(1, 65536));
  app.add_option("--heads", sizes.NH, "of 64 channels each")->check(CLI::Range(1, 1024));
  app.add_option("--calls", sizes.calls, "in a row, for each of three tries")
      ->check(CLI::Range(1, 1000));
  return run_on_gpu(app, argc, argv, [&] { return run(sizes) ? 0 : 1; });
}
