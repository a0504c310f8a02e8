// Bad input that every chapter from 02 on refuses.
#include "common/save/manifest.h"
#include "tests/common/refusal.h"

namespace ladder::test {
namespace {

class BadOptimizer : public Refusals {};
INSTANTIATE_TEST_SUITE_P(Refuses, BadOptimizer, ::testing::ValuesIn(some_chapters_from("02_adamw")),
                         chapter_name);

TEST_P(BadOptimizer, CheckpointOfAnother) {
  const std::string flags = "--layers 1 --channels 16 --heads 2 --optimizer ";
  std::vector<std::string> names = {"sgd", "sgd --momentum 0.9", "adamw"};
  if (GetParam() == "38_pretrain")
    names.insert(names.end(), {"lion", "adafactor", "adamw8bit", "muon"});
  for (size_t i = 0; i < names.size(); ++i)
    train(GetParam(), flags + names[i] + " --steps 1 --save of" + std::to_string(i));
  for (size_t i = 0; i < names.size(); ++i)
    for (size_t d = 1; d < names.size(); ++d) {
      const size_t other = (i + d) % names.size();
      // AdamW and Muon keep tensors of the same names and sizes: their state tells them apart.
      const auto two_moments = [&](size_t k) { return names[k] == "adamw" || names[k] == "muon"; };
      const bool same_tensors = two_moments(i) && two_moments(other);
      expect_refused(
          {flags + names[i] + " --load of" + std::to_string(other),
           same_tensors ? "its state optimizer: of --optimizer" : "optimizer.safetensors"});
    }
}

// Adam and AdamW keep the same tensors.
TEST_P(BadOptimizer, CheckpointOfAdamForAdamW) {
  const std::string flags = "--layers 1 --channels 16 --heads 2 --optimizer ";
  const auto refuse = [&](const std::string& theirs, const std::string& ours) {
    train(GetParam(), flags + theirs + " --steps 1 --save of_" + theirs);
    expect_refused(
        {flags + ours + " --load of_" + theirs,
         "its state optimizer: of --optimizer " + theirs + ", and this run has " + ours});
  };
  refuse("adam", "adamw");
  refuse("adamw", "adam");
}

// Without the count of updates the next step would be another.
TEST_P(BadOptimizer, CheckpointWithoutItsState) {
  const std::string flags = "--layers 1 --channels 16 --heads 2 ";
  train(GetParam(), flags + "--steps 1 --save half");
  Manifest manifest = Manifest::read(path("half/current"));
  manifest.state.erase("optimizer");
  manifest.write(path("half/current"));
  expect_refused({flags + "--load half", "checkpoint.json: holds no state optimizer"});
}

// The loss is that of the weights before the update, so it says nothing of the new weights.
TEST_P(BadOptimizer, InfiniteWeightsAreNotSaved) {
  const std::string flags = "--layers 1 --channels 16 --heads 2 --steps 1 --save good ";
  train(GetParam(), flags);
  const auto before = files();
  const Ended ended = run(GetParam(), small_run(flags + "--lr 1000 --weight-decay 3e38"));
  EXPECT_EQ(ended.status, 3);
  EXPECT_NE(ended.err.find("warning: step 0: not saved, transformer.wte.weight holds a NaN or an "
                           "infinity; good keeps what it holds\n"),
            std::string::npos)
      << ended.err;
  EXPECT_TRUE(files() == before);
}

}  // namespace
}  // namespace ladder::test
