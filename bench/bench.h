// What the benchmarks share: tensors with numbers in them, and the counters of a Cost.
#pragma once

#include <benchmark/benchmark.h>

#include "kernels/arena.h"
#include "kernels/cost.h"
#include "kernels/kernels.h"

namespace ladder::bench {

/// A Ctx of the cpu table and memory for its operands.
class Bench {
 public:
  explicit Bench(int threads) {
    ctx_.kernels = &cpu_kernels();
    ctx_.threads = threads;
    ctx_.scratch =
        arena_.alloc(Mem::Workspace, "scratch", Dtype::U8, {threads, cpu_kernels().scratch_bytes});
  }
  const Ctx& ctx() const { return ctx_; }

  Tensor alloc(Dtype dtype, Shape shape, uint8_t byte = 0) {
    const Tensor x = arena_.alloc(Mem::Activation, "operand", dtype, shape);
    std::fill_n(static_cast<uint8_t*>(x.ptr), x.bytes(), byte);
    return x;
  }
  /// In [-0.5, 0.5): the top bits of a linear congruential generator.
  Tensor random(Shape shape) {
    const Tensor x = alloc(Dtype::F32, shape);
    for (int64_t i = 0; i < x.size(); ++i) x.data<float>()[i] = next() - 0.5F;
    return x;
  }
  Tensor tokens(Shape shape, int64_t V) {
    const Tensor x = alloc(Dtype::I32, shape);
    for (int64_t i = 0; i < x.size(); ++i)
      x.data<int32_t>()[i] = static_cast<int32_t>(next() * static_cast<float>(V));
    return x;
  }

 private:
  float next() {
    state_ = state_ * 6364136223846793005U + 1442695040888963407U;
    return static_cast<float>(state_ >> 40) * 0x1p-24F;
  }

  Arena arena_;
  Ctx ctx_;
  uint64_t state_ = 1;
};

/// GFLOP and GB a second, from the cost of one iteration.
inline void count(benchmark::State& state, Cost cost) {
  const auto rate = [&](int64_t amount) {
    return benchmark::Counter(static_cast<double>(amount) * 1e-9,
                              benchmark::Counter::kIsIterationInvariantRate);
  };
  state.counters["GFLOP"] = rate(cost.flops);
  state.counters["GB"] = rate(cost.bytes);
}

}  // namespace ladder::bench
