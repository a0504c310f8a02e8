// Runs a small kernel with many orders of its threads, and checks the output.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cuda_runtime.h>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/check.h"
#include "kernels/cuda/on_cpu/block.h"
#include "kernels/cuda/on_cpu/watch.h"
#include "launch.h"

namespace ladder::test {

/// How a kernel is started.
struct Start {
  int64_t blocks = 3;
  int threads = 1;
  int64_t shared_bytes = 0;
};

/// Floats in the memory of the device.
struct OnDevice {
  explicit OnDevice(size_t n) {
    void* memory = nullptr;
    CHECK(cudaMalloc(&memory, n * sizeof(float)) == cudaSuccess, "no memory");
    data = static_cast<float*>(memory);
  }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;
  ~OnDevice() { cudaFree(data); }
  float* data = nullptr;
};

/// Each kernel turns 64 numbers around, or the first n.
class Faults : public testing::Test {
 protected:
  using Kernel = void (*)(float*, const float*);
  static constexpr int kSeeds = 20;

  Faults() {
    // So that the order of threads is the same in each run of this test.
    on_cpu::set_seed(1);
    for (int i = 0; i < 64; ++i) input_.push_back(static_cast<float>(i + 1));
  }
  ~Faults() override { on_cpu::set_seed(1); }

  const std::vector<float>& input() const { return input_; }

  /// The output; NaN where the kernel wrote nothing.
  std::vector<float> run(Kernel kernel, const Start& start) {
    const OnDevice inp(64), out(64);
    std::ranges::copy(input_, inp.data);
    on_cpu::run_grid(on_cpu::Where::current(), {.x = start.blocks}, start.threads,
                     start.shared_bytes, [&] { kernel(out.data, inp.data); });
    return {out.data, out.data + 64};
  }

  /// How many of kSeeds orders give the first n inputs backwards.
  int right(Kernel kernel, const Start& start, size_t n) {
    int count = 0;
    for (int seed = 0; seed < kSeeds; ++seed) {
      on_cpu::set_seed(static_cast<uint64_t>(seed));
      const std::vector<float> got = run(kernel, start);
      bool same = true;
      for (size_t i = 0; i < n; ++i) same = same && got[i] == input_[n - 1 - i];
      count += same ? 1 : 0;
    }
    return count;
  }
  void expect_right_for_all_seeds(Kernel kernel, const Start& start, size_t n = 64) {
    EXPECT_EQ(right(kernel, start, n), kSeeds);
  }
  void expect_wrong_for_some_seed(Kernel kernel, const Start& start, size_t n = 64) {
    EXPECT_LT(right(kernel, start, n), kSeeds);
  }

  /// Whether the kernel has a race, whatever the seed: in a program that watches. Of several blocks
  /// that write the same, which is a race, one is started.
  void expect_races([[maybe_unused]] Kernel kernel, [[maybe_unused]] Start start,
                    [[maybe_unused]] bool some) {
#ifdef __SANITIZE_THREAD__
    if (start.blocks == Start{}.blocks) start.blocks = 1;
    for (int seed = 0; seed < kSeeds; ++seed) {
      on_cpu::set_seed(static_cast<uint64_t>(seed));
      on_cpu::take_watched();
      run(kernel, start);
      const on_cpu::Watched seen = on_cpu::take_watched();
      EXPECT_EQ(seen.race_count > 0, some) << (seen.races.empty() ? "no race" : seen.races[0]);
    }
#endif
  }

  void expect_seen(Kernel good, Kernel bad, const Start& start, size_t n = 64) {
    expect_right_for_all_seeds(good, start, n);
    expect_wrong_for_some_seed(bad, start, n);
    expect_races(good, start, false);
    expect_races(bad, start, true);
  }

  /// launch() throws, and the message has both texts.
  void expect_error(Kernel kernel, const Start& start, const std::string& one,
                    const std::string& other) {
    try {
      run(kernel, start);
      ADD_FAILURE() << "no error with " << one;
    } catch (const CheckError& error) {
      EXPECT_NE(std::string(error.what()).find(one), std::string::npos) << error.what();
      EXPECT_NE(std::string(error.what()).find(other), std::string::npos) << error.what();
    }
  }

 private:
  std::vector<float> input_;
};

}  // namespace ladder::test
