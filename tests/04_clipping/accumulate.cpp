// Gradient accumulation: how many buffers it takes, and that it joins micro-batches as the tree of
// kernels/tree.h does.
#include "chapters/04_clipping/accumulate.h"

#include <cmath>

#include "kernels/tree.h"
#include "tests/common/run_files.h"
#include "tests/kernels/testing.h"

namespace ladder::test {
namespace {

constexpr int64_t kMost = 33;

/// The smallest model there is.
ParamLayout tiny_layout() {
  return ParamLayout({.name = "test",
                      .layers = 1,
                      .heads = 1,
                      .channels = 1,
                      .seq_len = 1,
                      .positions = 1,
                      .vocab = 2,
                      .padded_vocab = 2});
}

/// Buffers that GA micro-steps need, by playing them: each holds a run of 2^level of them.
int64_t simulated_buffers(int64_t GA) {
  std::vector<int> levels;
  size_t most = 0;
  for (int64_t k = 0; k < GA; ++k) {
    if (k % 2 == 0)
      levels.push_back(0);  // a fresh buffer
    else
      levels.back() = 1;  // added to the one before
    most = std::max(most, levels.size());
    while (levels.size() > 1 && levels[levels.size() - 2] == levels.back() && levels.back() > 0) {
      levels.pop_back();
      ++levels.back();
    }
  }
  return static_cast<int64_t>(most);
}

TEST(GradTree, TakesAsManyBuffersAsTheFormulaSays) {
  for (int64_t GA = 1; GA <= kMost; ++GA) {
    const int64_t buffers = GradTree::buffers({.mode = AccumulateMode::Tree}, GA);
    EXPECT_EQ(buffers, std::floor(std::log2(GA + 1))) << GA;
    EXPECT_EQ(buffers, simulated_buffers(GA)) << GA;
    EXPECT_EQ(GradTree::buffers({.mode = AccumulateMode::Running}, GA), 1);
  }
}

TEST(GradTree, CountsTheFirstBufferAsGradAndTheOthersAsWorkspace) {
  const ParamLayout layout = tiny_layout();
  for (int64_t GA = 1; GA <= kMost; ++GA)
    for (const AccumulateMode mode : {AccumulateMode::Tree, AccumulateMode::Running}) {
      Arena arena;
      const AccumulateOptions options{.mode = mode};
      const GradTree tree(arena, layout, options, GA);
      const int64_t bytes = 4 * layout.size();
      EXPECT_EQ(arena.current()[Mem::Grad], bytes);
      EXPECT_EQ(arena.current()[Mem::Workspace], (GradTree::buffers(options, GA) - 1) * bytes);
      EXPECT_EQ(arena.current().total(), GradTree::buffers(options, GA) * bytes);
    }
}

class Accumulation : public ::testing::Test {
 protected:
  /// One number stands for the gradient of each micro-batch.
  Accumulation() {
    const Tensor x = box.random({kMost});
    gradients.assign(x.data<float>(), x.data<float>() + kMost);
  }

  /// The sum of GA micro-steps, with buffers for as many as `room`: does what backward would.
  float accumulate(AccumulateMode mode, int64_t GA, int64_t room) {
    Arena arena;
    GradTree tree(arena, layout, {.mode = mode}, room);
    for (const int step : {0, 1})  // the second finds what the first left behind
      for (int64_t k = 0; k < GA; ++k) {
        tree.begin(k);
        float* grad = tree.view().embed.wte.data<float>();
        *grad = (tree.into() == Into::Add ? *grad : 0) + gradients[k] * (step == 0 ? 7 : 1);
        EXPECT_EQ(tree.flat().ptr, grad);
        tree.end(box.ctx(), k, GA);
      }
    return *tree.sum().data<float>();
  }
  float tree_of(int64_t GA) const {
    return tree_sum<float>(GA, [&](int64_t k) { return gradients[k]; });
  }

  Sandbox box{ref_kernels()};
  const ParamLayout layout = tiny_layout();
  std::vector<float> gradients;
};

TEST_F(Accumulation, JoinsAsTheTreeDoes) {
  for (int64_t GA = 1; GA <= kMost; ++GA) {
    EXPECT_EQ(accumulate(AccumulateMode::Tree, GA, GA), tree_of(GA)) << GA;
    EXPECT_EQ(accumulate(AccumulateMode::Tree, GA, kMost), tree_of(GA))
        << GA << ", with more buffers than it needs";
  }
}

TEST_F(Accumulation, NegativeControlARunningSumDiffers) {
  int differs = 0;
  for (int64_t GA = 1; GA <= kMost; ++GA) {
    float running = gradients[0];
    for (int64_t k = 1; k < GA; ++k) running += gradients[k];
    EXPECT_EQ(accumulate(AccumulateMode::Running, GA, GA), running) << GA;
    differs += running != tree_of(GA);
  }
  EXPECT_GT(differs, kMost / 2);
}

TEST(AccumulateOptions, MicroBatch) {
  EXPECT_EQ((AccumulateOptions{}.micro(12)), 12);
  EXPECT_EQ((AccumulateOptions{.micro_batch = 4}.micro(12)), 4);
  EXPECT_EQ((AccumulateOptions{.micro_batch = 4}.micro(2)), 2);
}

TEST(AccumulateOptions, IllegalMicroBatches) {
  const auto micro = [](int64_t micro_batch, int64_t batch) {
    return AccumulateOptions{.micro_batch = micro_batch}.micro(batch);
  };
  EXPECT_USER_ERROR(micro(3, 12), "legal are 1, 2, 4, 12");
  EXPECT_USER_ERROR(micro(6, 12), "legal are 1, 2, 4, 12");
  EXPECT_USER_ERROR(micro(8, 12), "legal are 1, 2, 4, 12");
  EXPECT_USER_ERROR(micro(2, 5), "a batch of 5; legal are 1, 5");
  EXPECT_USER_ERROR(micro(-1, 12), "at least 0");
}

}  // namespace
}  // namespace ladder::test
