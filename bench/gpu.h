// What the benchmarks on a GPU share: the device, tensors with numbers in them, a clock, flags.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "kernels/arena.h"
#include "kernels/cuda/backend.h"
#include "kernels/transfer.h"

namespace ladder::bench {

namespace cuda = ladder::LADDER_CUDA;

/// A device, and tensors on it.
class Gpu {
 public:
  Gpu() : device_(cuda::open_device(0)), arena_(device_.get()) {
    ctx_.kernels = &cuda::kernels();
    ctx_.device = device_.get();
    ctx_.scratch =
        arena_.alloc(Mem::Workspace, "scratch", Dtype::U8, {1, cuda::kernels().scratch_bytes});
    numbers_ = arena_.alloc(Mem::Activation, "numbers", Dtype::F32, {kNumbers});
    std::vector<float> some(kNumbers);
    for (size_t i = 0; i < some.size(); ++i) some[i] = std::sin(static_cast<float>(i * i % 7919));
    device_->copy(numbers_.ptr, some.data(), numbers_.bytes());
    device_->synchronize();
  }
  const Ctx& ctx() const { return ctx_; }
  Device& device() const { return *device_; }

  /// In [-1, 1], as different from each other as need be: products of zeros take less power.
  Tensor random(Dtype dtype, Shape shape) {
    const Tensor x = arena_.alloc(Mem::Activation, "operand", dtype, shape);
    for (int64_t begin = 0; begin < x.size(); begin += kNumbers) {
      const int64_t count = std::min(kNumbers, x.size() - begin);
      cuda::kernels().cast(ctx_, x.view({x.size()}).slice(begin, count), numbers_.first(count));
    }
    return x;
  }
  Tensor half(Shape shape) { return random(Dtype::BF16, shape); }
  Tensor full(Shape shape) { return random(Dtype::F32, shape); }
  Tensor zeros(Dtype dtype, Shape shape) {
    return arena_.zeros(Mem::Activation, "operand", dtype, shape);
  }
  /// Whole numbers from 0 to V - 1, which the host may read and write.
  Tensor tokens(Shape shape, int64_t V) {
    const Tensor x = arena_.shared(Mem::Activation, "tokens", Dtype::I32, shape);
    for (int64_t i = 0; i < x.size(); ++i)
      x.data<int32_t>()[i] = static_cast<int32_t>(i * 7919 % V);
    return x;
  }
  Tensor on_device(const Tensor& x) {
    const Tensor y = arena_.alloc(Mem::Activation, "operand", x.dtype, x.shape);
    device_->copy(y.ptr, x.ptr, x.bytes());
    return y;
  }
  /// The numbers of a tensor, on the host.
  std::vector<float> read(const Tensor& x) {
    const Tensor wide = arena_.alloc(Mem::Activation, "wide", Dtype::F32, x.shape);
    cuda::kernels().cast(ctx_, wide, x);
    std::vector<float> all(static_cast<size_t>(x.size()));
    device_->copy(all.data(), wide.ptr, wide.bytes());
    device_->synchronize();
    return all;
  }

 private:
  static constexpr int64_t kNumbers = 1 << 20;

  std::unique_ptr<Device> device_;
  Arena arena_;
  Ctx ctx_;
  Tensor numbers_;
};

/// Seconds of one of `calls` in a row, so that starting one hides behind those that run.
template <class Call>
double seconds(const Gpu& gpu, Call&& call, int calls) {
  gpu.device().synchronize();
  const int64_t begin = now_ns();
  for (int i = 0; i < calls; ++i) call();
  gpu.device().synchronize();
  return static_cast<double>(now_ns() - begin) * 1e-9 / calls;
}

/// Runs `body` if the flags are right and there is a GPU. @return the program's status
template <class Body>
int run_on_gpu(CLI::App& flags, int argc, char** argv, Body&& body) {
  try {
    flags.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return flags.exit(error) == 0 ? 0 : 2;
  }
  if (cuda::device_count() == 0) {
    fmt::print(stderr, "error: no GPU here\n");
    return 2;
  }
  return body();
}

}  // namespace ladder::bench
