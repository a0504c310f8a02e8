// Checkpoints of several ranks: on every layout the files are those that one rank writes, and each
// byte is written once.

#include <atomic>

#include "common/comm/faulty_comm.h"
#include "common/comm/run_ranks.h"
#include "common/save/checkpoint.h"
#include "tests/common/bad_disk.h"
#include "tests/common/comm/on_ranks.h"
#include "tests/common/run_files.h"
#include "tests/common/run_model.h"

namespace ladder {
namespace {

/// How a model is spread.
struct Spread {
  int64_t shards = 1, tp = 1, pp = 1, replicas = 1, ep = 1;
  int ranks() const { return static_cast<int>(shards * tp * pp * replicas); }
};
void PrintTo(const Spread& s, std::ostream* out) {
  *out << s.shards << " shards, tp " << s.tp << ", pp " << s.pp << ", ep " << s.ep << ", "
       << s.replicas << " replicas";
}

/// What one rank has of it.
struct RankModel {
  RankModel(const GptConfig& config, const Spread& s, Comm& comm)
      : layout(of_rank(config, s, comm.rank())), comm_(comm) {}

  static ParamLayout of_rank(const GptConfig& config, const Spread& s, int64_t rank) {
    const std::optional<ExpertRank> experts =
        s.ep > 1 ? std::optional(ExpertRank{0, s.ep}) : std::nullopt;
    return ParamLayout(config, s.shards, {0, s.tp}, {0, s.pp}, experts)
        .shard(0)
        .on_rank(rank % (s.shards * s.tp * s.pp));
  }
  TrainingState state() const {
    return {.gpt = layout.config(),
            .layout = layout,
            .params = layout.own(params),
            .optim = {{"code", code}, {"m", m}, {"count", count}},
            .comm = &comm_};
  }
  int64_t load(const std::string& path) const { return load_checkpoint(Ctx{}, path, state()); }

  ParamLayout layout;
  Arena arena{};
  Tensor params = arena.zeros(Mem::Param, "params", Dtype::F32, {layout.size()});
  Tensor code = arena.zeros(Mem::Optim, "code", Dtype::U8, {layout.size()});
  Tensor m = arena.zeros(Mem::Optim, "m", Dtype::F32, {layout.size()});
  Tensor count = arena.zeros(Mem::Optim, "count", Dtype::I64, {1, 3});

 private:
  Comm& comm_;
};

class SavedByRanks : public testing::TestWithParam<Spread> {
 protected:
  SavedByRanks() {
    configs_ = {small_config(), small_of("llama-nano", 32)};
    if (GetParam().ep > 1) configs_ = {small_of("moe-nano", 32)};
  }

  /// Saves a model on one rank. All its numbers are different.
  std::string save_one(const GptConfig& config, SaveHow how) const {
    const std::string dir = dir_ / "one";
    std::filesystem::remove_all(dir);
    run_threads(1, [&](Comm& comm) {
      const RankModel model(config, {}, comm);
      for (const ParamSpec& spec : model.layout.specs()) {
        SmallModel::fill_all<float>(model.params.slice(spec.offset, spec.live()),
                                    1 + static_cast<float>(spec.offset));
        SmallModel::fill_all<float>(model.m.slice(spec.offset, spec.live()),
                                    0.5f + static_cast<float>(spec.offset));
        SmallModel::fill_all<uint8_t>(model.code.slice(spec.offset, spec.live()), 1);
      }
      SmallModel::fill_all<int64_t>(model.count.view({3}), 7);
      SaveDirectory home(dir);
      EXPECT_EQ(save_checkpoint(home, model.state(), 3, how), "");
    });
    return dir;
  }

  TempDir dir_;
  std::vector<GptConfig> configs_;
};

/// The files of the checkpoint, by name.
std::map<std::string, std::string> checkpoint_files(const std::string& dir) {
  return files_in(checkpoint_in(dir)->string());
}

TEST_P(SavedByRanks, HasTheFilesOfOneRank) {
  for (const GptConfig& config : configs_)
    for (const SaveHow how : {SaveHow{}, {.gather = true}, {.file_bytes = 1500}}) {
      const std::string one = save_one(config, how), many = dir_ / "many";
      const auto wanted = checkpoint_files(one);
      EXPECT_EQ(wanted.size() > 4, how.file_bytes == 1500);
      int64_t bytes = 0;
      for (const auto& [name, text] : wanted)
        bytes += name.ends_with(".safetensors") ? std::ssize(text) : 0;
      std::atomic<int64_t> written = 0, sent = 0, writes = 0, most = 0;
      std::filesystem::remove_all(many);
      run_threads(GetParam().ranks(), [&](Comm& comm) {
        const RankModel model(config, GetParam(), comm);
        model.load(one);
        const auto home = open_save_directory(many, 1, !how.gather, &comm);
        const int64_t before = comm.statistics().wire_bytes();
        CheckpointSave save(*home, model.state(), 3, how);
        save.write(Ctx{}, model.state());
        save.agree(&comm);
        save.publish();
        EXPECT_EQ(save.error() + save.why_not(), "");
        written += save.written().bytes;
        writes += save.written().writes;
        most += 3 * std::ssize(model.layout.specs());
        sent += comm.statistics().wire_bytes() - before;
      });
      // With the checksums, to which a run that two ranks wrote would add twice.
      EXPECT_TRUE(checkpoint_files(many) == wanted);
      EXPECT_LE(written, bytes);
      // Only numbers of matrices that the files have transposed travel, unless rank 0 gathers.
      const int64_t weights = config.name == "test" ? 4 * ParamLayout(config).live() : 0;
      EXPECT_TRUE(how.gather || sent < weights + 1000 * GetParam().ranks()) << sent;
      // Flat states have what tensor ranks share of a matrix row by row.
      if (config.name != "test" || GetParam().tp > 1) continue;
      // One run of each parameter of GPT-2, and one of its part of each state; heads; "count".
      EXPECT_LE(writes, most + std::ssize(wanted) + 1);
    }
}

INSTANTIATE_TEST_SUITE_P(Spreads, SavedByRanks,
                         testing::Values(Spread{}, Spread{.shards = 2}, Spread{.shards = 8},
                                         Spread{.tp = 2}, Spread{.pp = 2}, Spread{.replicas = 3},
                                         Spread{.shards = 2, .replicas = 2},
                                         Spread{.shards = 2, .tp = 2, .pp = 2},
                                         Spread{.shards = 4, .ep = 2}));

class RanksAndTheDisk : public testing::Test {
 protected:
  /// What stops a save of two ranks; empty if it is saved.
  std::string save(int64_t step) const {
    const auto body = [&](Comm& comm) {
      const RankModel model(small_config(), {.shards = 2}, comm);
      SmallModel::fill_all<float>(model.m, static_cast<float>(step));
      const auto home = open_save_directory(dir_.path(), 1, /*shared=*/true, &comm);
      save_checkpoint(*home, model.state(), step);
      comm.barrier();
    };
    return test::failure_of(2, body).line;
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

// A checksum does not see that a run of zeros was forgotten, because zeros add nothing.
TEST_F(RanksAndTheDisk, SeeThatSomeBytesAreNotWrittenOnce) {
  const GptConfig config = small_of("llama-nano", 32);
  ASSERT_EQ(save(1), "");
  for (const bool forgets : {true, false})
    run_threads(2, [&](Comm& comm) {
      RankModel model(config, {.shards = 2}, comm);
      const auto home = open_save_directory(dir_.path(), 1, /*shared=*/true, &comm);
      CheckpointSave save(*home, model.state(), 2);
      if (!forgets) model.layout = RankModel::of_rank(config, {.shards = 2}, 0);
      TrainingState state = model.state();
      if (forgets && comm.rank() == 1) state.optim.erase(state.optim.begin() + 1);
      save.write(Ctx{}, state);
      save.agree(&comm);
      save.publish();
      EXPECT_EQ(save.error().find("ranks have not written each byte once") != std::string::npos,
                comm.rank() == 0)
          << save.error();
    });
  EXPECT_EQ(steps(), 1);
}

TEST_F(RanksAndTheDisk, RefuseADirectoryThatIsNotShared) {
  const auto open = [&](bool shared) {
    return test::failure_of(3, [&](Comm& comm) {
      const std::string own = dir_ / (comm.rank() == 2 ? "other" : "one");
      std::filesystem::create_directory(own);
      open_save_directory(own, 1, shared, &comm);
      comm.barrier();
    });
  };
  const std::string message = open(true).line;
  EXPECT_NE(message.find("rank 2 does not see in " + dir_ / "other"), message.npos) << message;
  EXPECT_NE(message.find("legal is a directory that all ranks share"), message.npos);
  EXPECT_EQ(files_in(dir_.path()).size(), 2u) << "two empty directories";
  EXPECT_EQ(open(false).line, "");
}

/// Calls a function before its first split.
class BeforeSplit : public FaultyComm {
 public:
  BeforeSplit(Comm& inner, std::function<void()> call)
      : FaultyComm(inner, {}), call_(std::move(call)) {}

 protected:
  std::unique_ptr<Comm> do_split(int color, int key) override {
    if (call_) std::exchange(call_, nullptr)();
    return FaultyComm::do_split(color, key);
  }

 private:
  std::function<void()> call_;
};

// Ranks agree in a group that they split off. When rank 0 is about to, it has found step 1.
TEST_F(RanksAndTheDisk, LoadOneCheckpointWhileAnotherProgramSaves) {
  ASSERT_EQ(save(1), "");
  run_threads(2, [&](Comm& comm) {
    const auto save_again = [&] {
      EXPECT_EQ(save(2), "");
      comm.barrier();
    };
    if (comm.rank() == 1) comm.barrier();
    BeforeSplit hooked(comm, comm.rank() == 0 ? save_again : std::function<void()>());
    const RankModel model(small_config(), {.shards = 2}, hooked);
    EXPECT_EQ(model.load(dir_.path()), 2) << "rank " << comm.rank();
    EXPECT_EQ(model.m.data<float>()[0], 2) << "rank " << comm.rank();
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
  EXPECT_EQ(failure.line,
            "error: rank 0: " + dir_ / "one" +
                ": rank 2 does not find there what rank 0 does; legal is the same on every rank");
  EXPECT_EQ(failure.status, 2);
}

}  // namespace
}  // namespace ladder
