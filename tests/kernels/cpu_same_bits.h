// Fixture of the tests of the bits of `cpu`, at sizes where threads, blocks and chunks really cut.
#pragma once

#include <functional>
#include <vector>

#include "kernels/tree.h"
#include "tests/kernels/testing.h"

namespace ladder::test {

class CpuSameBits : public ::testing::Test {
 protected:
  explicit CpuSameBits(Dtype real = Dtype::F32) : dtype(real) {}

  const Dtype dtype;
  Sandbox box{cpu_kernels(), dtype};
  const Kernels& k = box.kernels();
  const Ctx& ctx = box.ctx();

  /// Runs with 1 to 4 threads on copies of `start`; all must have the bits of the first run.
  void expect_any_threads(const char* name, const std::vector<Tensor>& start,
                          const std::function<void(const std::vector<Tensor>&)>& run) {
    std::vector<Tensor> first;
    for (int threads = 1; threads <= 4; ++threads) {
      box.set_threads(threads);
      std::vector<Tensor> out;
      for (const Tensor& x : start) out.push_back(box.copy(x));
      run(out);
      if (threads == 1) first = out;
      for (size_t i = 0; i < out.size(); ++i)
        EXPECT_TRUE(same_bits(out[i], first[i])) << name << " with " << threads << " threads";
    }
  }

  /// Rows and columns of a matrix, as a matrix of its own.
  Tensor part(const Tensor& x, Range rows, Range cols) {
    const Tensor y = box.empty({rows.size(), cols.size()});
    for (int64_t r = 0; r < rows.size(); ++r)
      for (int64_t c = 0; c < cols.size(); ++c)
        set(y, r * cols.size() + c, at(x, (rows.begin + r) * x.dim(-1) + cols.begin + c));
    return y;
  }
  Tensor columns(const Tensor& x, int64_t begin, int64_t end) {
    return part(x, {0, x.rows()}, {begin, end});
  }
};

}  // namespace ladder::test
