// Runs a small kernel with many orders of its threads, and checks the output.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/cuda/on_cpu/block.h"
#include "launch.h"
#include "tests/kernels/cuda/device_under_test.h"
#include "tests/kernels/testing.h"

namespace ladder::test {

/// How a kernel is started.
struct Start {
  int64_t blocks = 3;
  int threads = 1;
  int64_t shared_bytes = 0;
};

/// Each kernel turns 64 numbers around, or the first n.
class Faults : public DeviceTest {
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
    const Tensor host{.ptr = input_.data(), .dtype = Dtype::F32, .shape = {64}};
    const Tensor inp = dut().upload(host), out = dut().empty(Dtype::F32, {64});
    dev::launch(dut().ctx, kernel, Grid{.x = start.blocks}, start.threads, start.shared_bytes,
                static_cast<float*>(out.ptr), static_cast<const float*>(inp.ptr));
    const Tensor got = dut().download(out);
    const float* from = got.data<float>();
    return {from, from + 64};
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

  void expect_seen(Kernel good, Kernel bad, const Start& start, size_t n = 64) {
    expect_right_for_all_seeds(good, start, n);
    expect_wrong_for_some_seed(bad, start, n);
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
