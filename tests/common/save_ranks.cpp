// Checkpoints of several ranks: on every layout the files are those that one rank writes.

#include "common/comm/failure.h"
#include "tests/common/bad_disk.h"
#include "tests/common/comm/on_ranks.h"
#include "tests/common/spread_model.h"

namespace ladder {
namespace {

class SavedByRanks : public testing::TestWithParam<Spread> {};

TEST_P(SavedByRanks, HasTheFilesOfOneRank) {
  for (const GptConfig& config : spread_configs(GetParam())) {
    const TempDir dir;
    save_one(config, dir / "one");
    SaveDirectory many(dir / "many");
    run_threads(GetParam().ranks(), [&](Comm& comm) {
      const RankModel model(config, GetParam(), comm);
      model.load(dir / "one");
      EXPECT_EQ(save_checkpoint(many, model.state(), 3), "");
    });
    EXPECT_TRUE(checkpoint_files(dir / "many") == checkpoint_files(dir / "one"));
  }
}

INSTANTIATE_TEST_SUITE_P(Spreads, SavedByRanks, kSpreads);

class RanksAndTheDisk : public testing::Test {
 protected:
  /// What stops a save of two ranks; empty if it is saved.
  std::string save(int64_t step) const {
    std::optional<SaveDirectory> home;
    const std::string opened = user_error([&] { home.emplace(dir_.path()); });
    if (!opened.empty()) return opened;
    return test::failure_of(2,
                            [&](Comm& comm) {
                              const RankModel model(small_config(), {.shards = 2}, comm);
                              SmallModel::fill_all<float>(model.m, static_cast<float>(step));
                              save_checkpoint(*home, model.state(), step);
                              comm.barrier();
                            })
        .line;
  }
  int64_t steps() const { return Manifest::find(dir_.path())->steps(); }

  RepairDisk repair_;
  TempDir dir_;
};

TEST_F(RanksAndTheDisk, AnyOperationOfAnyRankFails) {
  ASSERT_EQ(save(1), "");
  const size_t files = files_in(dir_.path()).size();
  fail_each_operation(
      [&] { return save(2); },
      [&](const std::string& message) {
        EXPECT_TRUE(message.empty() || message.find("cannot ") != message.npos) << message;
        EXPECT_EQ(message.find("rank "), message.rfind("rank ")) << "once in " << message;
        EXPECT_TRUE(steps() == 1 || steps() == 2);
        EXPECT_TRUE(!message.empty() || steps() == 2);
        run_threads(1, [&](Comm& comm) { RankModel(small_config(), {}, comm).load(dir_.path()); });
        testing::internal::CaptureStderr();
        EXPECT_EQ(save(1), "");
        testing::internal::GetCapturedStderr();
        EXPECT_EQ(files_in(dir_.path()).size(), files);
      });
}

TEST_F(RanksAndTheDisk, RefuseToLoadDifferentCheckpoints) {
  for (const int64_t step : {1, 2}) {
    ASSERT_EQ(save(step), "");
    std::filesystem::copy(dir_ / "current", dir_ / (step == 1 ? "one" : "other"));
  }
  const Failure failure = test::failure_of(3, [&](Comm& comm) {
    RankModel(small_config(), {.shards = 3}, comm)
        .load(dir_ / (comm.rank() == 2 ? "other" : "one"));
  });
  EXPECT_EQ(failure.line, "error: rank 0: " + dir_ / "one" +
                              ": rank 2 does not find there what rank 0 does; legal is the same on "
                              "every rank, to which "
                              "nobody saves meanwhile");
  EXPECT_EQ(failure.status, 2);
}

}  // namespace
}  // namespace ladder
