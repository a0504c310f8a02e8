// --async: what is written is the state of the step that was saved, whatever training does
// meanwhile; and what goes wrong in a thread is told at the next step's end.
#include "chapters/28_async_checkpoint/async_save.h"

#include <cmath>
#include <thread>

#include "common/comm/run_ranks.h"
#include "common/run/ending.h"
#include "tests/common/bad_disk.h"
#include "tests/common/comm/on_ranks.h"
#include "tests/common/run_files.h"
#include "tests/common/run_model.h"
#include "tests/common/spread_model.h"

namespace ladder {
namespace {

void hold(bool held) { std::atomic_ref(bad_disk.held) = held; }

/// A rank that has a shard, and "trains".
struct Rank {
  Rank(const RunOptions& options, Comm& c)
      : comm(c),
        layout(ParamLayout(small_config(), comm.size()).shard(comm.rank())),
        run(options,
            {.chapter = "28",
             .gpt = small_config(),
             .layout = run_layout(options, 1),
             .predicted = {}},
            arena, ctx, &comm) {}

  TrainingState state() const {
    return {.layout = layout, .params = layout.own(params), .optim = {{"m", m}}, .comm = &comm};
  }
  void fill(float value) {
    for (const Tensor& tensor : {params, m})
      std::fill_n(tensor.data<float>(), tensor.size(), value);
  }
  /// Step `step`, which leaves this in all weights. Afterwards training changes them again.
  void train(int64_t step, float value, bool saves) {
    run.goes_on(step);
    run.begin_step();
    fill(value);
    run.end_step({.step = step, .loss = 2, .grad_norm = 1, .lr = 1, .tokens = 1});
    if (saves) saving.save(ctx, state(), step + 1);
    fill(-1);
    saving.end_step(step);
  }

  Comm& comm;
  ParamLayout layout;
  Arena arena{};
  Ctx ctx;
  Tensor params = arena.zeros(Mem::Param, "params", Dtype::F32, {layout.size()});
  Tensor m = arena.zeros(Mem::Optim, "m", Dtype::F32, {layout.size()});
  Staging staging{arena, {.async = true}, params, {{"m", m}}};
  Run run;
  AsyncSave saving{run, staging};
};

class Async : public testing::Test {
 protected:
  Async() {
    forget_ending();
    run_.steps = 100;
    run_.quiet = true;
    run_.data = texts_ / "text";
    run_.save = dir_.path();
    run_.overwrite = true;  // a test may train twice
    write_file(run_.data, std::string(1000, 'a'));
  }
  ~Async() override { forget_ending(); }

  /// What ends the run of two ranks; empty if it ends well.
  std::string ranks(const std::function<void(Rank&)>& body) const {
    const auto body_of_rank = [&](Comm& comm) {
      Rank rank(run_, comm);
      body(rank);
      comm.barrier();
    };
    try {
      run_threads(2, body_of_rank);
    } catch (const RankFailed& e) {
      return e.what();
    }
    return "";
  }
  /// The step of the checkpoint; 0: none. All its numbers must be `value`.
  int64_t found(float value) const {
    const std::optional<Manifest> manifest = Manifest::find(dir_.path());
    if (!manifest) return 0;
    SmallModel model;
    model.optim.erase(model.optim.begin());
    model.optim.pop_back();
    const int64_t steps = model.load(dir_.path());
    for (const ParamSpec& spec : model.layout.specs())
      for (const Tensor& tensor : {model.params, model.optim[0].tensor})
        EXPECT_EQ(tensor.data<float>()[spec.offset + spec.live() - 1], value) << spec.name;
    return steps;
  }

  RepairDisk repair_;
  TempDir dir_, texts_;
  RunOptions run_;
};

// A snapshot by reference would save what training has made of the weights meanwhile: PyTorch's
// issue 144657.
TEST_F(Async, SavesTheStepThatWasSaved) {
  EXPECT_EQ(ranks([&](Rank& rank) {
              rank.comm.barrier();
              hold(true);
              rank.train(0, 5, true);
              for (int64_t step = 1; step < 4; ++step) rank.train(step, 7, false);
              EXPECT_FALSE(Manifest::find(dir_.path())) << "training does not wait for the disk";
              rank.comm.barrier();
              hold(false);
              rank.train(99, 7, false);  // the last step
            }),
            "");
  EXPECT_EQ(found(5), 1);
}

TEST_F(Async, IsCommittedAtTheEndOfALaterStep) {
  EXPECT_EQ(ranks([&](Rank& rank) {
              rank.train(0, 5, true);
              int64_t step = 1;
              for (bool there = false; !there; ++step) {
                rank.train(step, 7, false);
                std::this_thread::sleep_for(std::chrono::milliseconds(5));
                there = rank.run.most(rank.comm.rank() == 0 && Manifest::find(dir_.path())) != 0;
                ASSERT_LT(step, 90);
              }
            }),
            "");
  EXPECT_EQ(found(5), 1);
}

TEST_F(Async, ASecondSaveWaitsAndSaysSo) {
  run_.quiet = false;
  testing::internal::CaptureStdout();
  EXPECT_EQ(ranks([&](Rank& rank) {
              rank.comm.barrier();
              hold(true);
              rank.train(0, 5, true);
              rank.comm.barrier();
              std::thread later([] {
                std::this_thread::sleep_for(std::chrono::milliseconds(50));
                hold(false);
              });
              rank.train(1, 6, true);
              later.join();
              rank.train(99, 7, false);
            }),
            "");
  const std::string out = testing::internal::GetCapturedStdout();
  EXPECT_NE(out.find("step 1: waited 0."), out.npos) << out;
  EXPECT_NE(out.find(" s for the save of step 0\n"), out.npos) << out;
  EXPECT_EQ(found(6), 2);
}

TEST_F(Async, AWriteThatFailsEndsTheRun) {
  ASSERT_EQ(ranks([](Rank& rank) { rank.train(99, 5, true); }), "");
  const auto before = files_in(dir_.path());
  for (const int operation : {0, 2, 4, 6, 8}) {
    int64_t steps = 0;
    const std::string message = ranks([&](Rank& rank) {
      rank.comm.barrier();
      if (rank.comm.rank() == 0) bad_disk = {.fail_at = operation};
      rank.comm.barrier();
      rank.train(0, 6, true);
      for (int64_t step = 1; step < 90; ++step) {
        rank.train(step, 7, false);
        if (rank.comm.rank() == 0) steps = step;
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
      }
    });
    bad_disk = {};
    EXPECT_NE(message.find("cannot "), message.npos) << operation;
    EXPECT_LT(steps, 80) << operation;
    EXPECT_TRUE(files_in(dir_.path()) == before) << operation;
  }
}

TEST_F(Async, ANanVetoes) {
  ASSERT_EQ(ranks([](Rank& rank) { rank.train(99, 5, true); }), "");
  testing::internal::CaptureStderr();
  EXPECT_EQ(ranks([](Rank& rank) {
              rank.train(98, rank.comm.rank() == 1 ? std::nanf("") : 6, true);
              rank.train(99, 7, false);
            }),
            "");
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("warning: step 98: not saved, "), said.npos) << said;
  EXPECT_NE(said.find(" holds a NaN or an infinity"), said.npos) << said;
  EXPECT_EQ(found(5), 100);
}

// Two ranks that do not share the directory: each would write into its own.
TEST_F(Async, IsRefusedWhereADirectoryIsNotShared) {
  const std::string message = test::failure_of(2, [&](Comm& comm) {
                                RunOptions own = run_;
                                if (comm.rank() == 1) own.save = texts_.path();
                                const Rank rank(own, comm);
                                comm.barrier();
                              }).line;
  EXPECT_NE(message.find("rank 1 does not see in " + texts_.path()), message.npos) << message;
  EXPECT_NE(message.find("legal with --async is a directory that all ranks share"), message.npos);
}

class OwnBytes : public testing::TestWithParam<Spread> {};

/// Writes step 3 as --async does, without a thread. @return on rank 0, why it is not saved
std::string save_own_bytes(const std::filesystem::path& dir, SaveDirectory& home,
                           const RankModel& model, Comm& comm,
                           const std::optional<TrainingState>& spoilt = {}) {
  const TrainingState state = model.state();
  PendingSave save(state, 3);
  if (comm.rank() == 0) {
    save.generation.emplace(home, 3);
    save.small.emplace(state, 3);
  }
  save.path = dir / name_on_all(save.generation, &comm);
  save.write(spoilt ? *spoilt : state);
  save.agree(&comm);
  save.commit();
  return save.error + save.why_not;
}

// Byte for byte: checksums, too.
TEST_P(OwnBytes, AreTheFilesOfOneRank) {
  for (const GptConfig& config : spread_configs(GetParam())) {
    const TempDir dir;
    save_one(config, dir / "one");
    SaveDirectory many(dir / "many");
    run_threads(GetParam().ranks(), [&](Comm& comm) {
      const RankModel model(config, GetParam(), comm);
      model.load(dir / "one");
      EXPECT_EQ(save_own_bytes(dir / "many", many, model, comm), "");
    });
    EXPECT_TRUE(checkpoint_files(dir / "many") == checkpoint_files(dir / "one"));
  }
}

INSTANTIATE_TEST_SUITE_P(Spreads, OwnBytes, kSpreads);

// A checksum does not see that a range of zeros was forgotten, because zeros add nothing.
TEST(OwnBytesControl, SeeThatSomeAreNotWrittenOnce) {
  const GptConfig config = small_of("llama-nano", 32);
  const TempDir dir;
  save_one(config, dir / "one");
  SaveDirectory home(dir / "many");
  for (const bool forgets : {true, false})
    run_threads(2, [&](Comm& comm) {
      const RankModel model(config, {.shards = 2}, comm);
      const ParamLayout first = RankModel::of_rank(config, {.shards = 2}, 0);
      TrainingState spoilt{.layout = forgets ? model.layout : first,
                           .params = model.layout.own(model.params),
                           .optim = model.state().optim,
                           .comm = &comm};
      if (forgets && comm.rank() == 1) spoilt.optim.erase(spoilt.optim.begin() + 1);
      const std::string error = save_own_bytes(dir / "many", home, model, comm, spoilt);
      EXPECT_EQ(error.find("ranks have not written each byte once") != error.npos, comm.rank() == 0)
          << error;
    });
}

}  // namespace
}  // namespace ladder
