// The ladder of attention on a GPU: each rung's time and rate, beside the rate of a large product.
//
//   bench_attention_ladder                      GPT-2 124M: 32 sequences of 1,024 tokens, 12 heads
//   bench_attention_ladder --batch 1 --seq-len 130 --heads 2 --calls 1
//
// Each rung is first held against the first one: within what BF16 rounds. Status 1 if one is wrong.
#include <algorithm>
#include <cmath>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "bench/attention_ladder/ladder.h"
#include "kernels/arena.h"
#include "kernels/cuda/backend.h"
#include "kernels/transfer.h"

namespace ladder::bench {
namespace {

namespace dev = ladder::LADDER_CUDA;

struct Sizes {
  int64_t B = 32, T = 1024, NH = 12;
  int calls = 10;

  /// Two products of HS multiply-adds for each pair of a query and a key that it sees.
  double flops() const {
    return 4.0 * 64 * static_cast<double>(B * NH) * static_cast<double>(T * (T + 1) / 2);
  }
};

class Ladder {
 public:
  explicit Ladder(const Sizes& sizes)
      : s_(sizes), device_(dev::open_device(0)), arena_(device_.get()) {
    ctx_.kernels = &dev::kernels();
    ctx_.device = device_.get();
    ctx_.scratch =
        arena_.alloc(Mem::Workspace, "scratch", Dtype::U8, {1, dev::kernels().scratch_bytes});
    qkv_ = random({s_.B, s_.T, 3 * s_.NH * 64}, 1);
    dout_ = random({s_.B, s_.T, s_.NH * 64}, 2);
    out_ = arena_.alloc(Mem::Activation, "out", Dtype::BF16, dout_.shape);
    lse_ = arena_.alloc(Mem::Activation, "lse", Dtype::F32, {s_.B, s_.NH, s_.T});
    dqkv_ = arena_.alloc(Mem::Grad, "dqkv", Dtype::BF16, qkv_.shape);
  }

  /// Whether all rungs compute the same.
  bool run() {
    bool right = true;
    std::vector<float> out, dqkv;
    fmt::print("{:36}{:>12}{:>10}{:>13}{:>10}   of rung 1\n", "rung", "forward us", "TFLOP/s",
               "backward us", "TFLOP/s");
    for (const Rung& rung : rungs()) {
      const double ahead = seconds([&] { rung.forward(ctx_, out_, lse_, qkv_); });
      double error = difference(out, out_), back = NAN;
      if (rung.backward) {
        back = seconds([&] { rung.backward(ctx_, dqkv_, dout_, qkv_, out_, lse_); });
        error = std::max(error, difference(dqkv, dqkv_));
      }
      fmt::print("{:36}{:12.0f}{:10.1f}{:13.0f}{:10.1f}   {:.1e}\n", rung.name, ahead * 1e6,
                 s_.flops() / ahead * 1e-12, back * 1e6, 2.5 * s_.flops() / back * 1e-12, error);
      right = right && error < kMostError;
    }
    return right;
  }

 private:
  /// Of the length of the whole tensor: weights, slopes and results are each rounded to 8 bits.
  static constexpr double kMostError = 1e-2;

  Tensor random(Shape shape, int64_t seed) {
    const Tensor x = arena_.alloc(Mem::Activation, "operand", Dtype::BF16, shape);
    std::vector<float> numbers(static_cast<size_t>(std::min<int64_t>(x.size(), 1 << 20)));
    for (size_t i = 0; i < numbers.size(); ++i)
      numbers[i] = std::sin(static_cast<float>((static_cast<int64_t>(i) * seed) % 7919));
    const Tensor from = arena_.alloc(Mem::Activation, "numbers", Dtype::F32,
                                     {static_cast<int64_t>(numbers.size())});
    device_->copy(from.ptr, numbers.data(), from.bytes());
    for (int64_t i = 0; i < x.size(); i += from.size()) {
      const int64_t count = std::min(from.size(), x.size() - i);
      dev::kernels().cast(ctx_, x.view({x.size()}).slice(i, count), from.first(count));
    }
    device_->synchronize();
    return x;
  }

  /// Seconds of a call, the best of three tries.
  template <class F>
  double seconds(F&& call) {
    call();
    double best = INFINITY;
    for (int i = 0; i < 3; ++i) {
      device_->synchronize();
      const int64_t begin = now_ns();
      for (int j = 0; j < s_.calls; ++j) call();
      device_->synchronize();
      best = std::min(best, static_cast<double>(now_ns() - begin) * 1e-9 / s_.calls);
    }
    return best;
  }

  /// Distance from `want`, relative to its length; `want` is set by the first call. NaN counts.
  double difference(std::vector<float>& want, const Tensor& x) {
    const Tensor wide = arena_.alloc(Mem::Activation, "wide", Dtype::F32, x.shape);
    dev::kernels().cast(ctx_, wide, x);
    std::vector<float> got(static_cast<size_t>(x.size()));
    device_->copy(got.data(), wide.ptr, wide.bytes());
    device_->synchronize();
    if (want.empty()) want = got;
    double apart = 0, length = 0;
    for (size_t i = 0; i < got.size(); ++i) {
      apart += std::pow(got[i] - want[i], 2);
      length += std::pow(want[i], 2);
    }
    return std::isfinite(apart) ? std::sqrt(apart / length) : INFINITY;
  }

  Sizes s_;
  std::unique_ptr<Device> device_;
  Arena arena_;
  Ctx ctx_;
  Tensor qkv_, dout_, out_, lse_, dqkv_;
};

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
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  if (ladder::LADDER_CUDA::device_count() == 0) {
    fmt::print(stderr, "bench_attention_ladder: no GPU here\n");
    return 2;
  }
  return Ladder(sizes).run() ? 0 : 1;
}
