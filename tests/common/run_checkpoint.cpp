// Checkpoints: everything comes back bit for bit, or nothing is touched.

#include "common/run/checkpoint.h"
#include "common/run/manifest.h"
#include "tests/common/run_files.h"
#include "tests/common/run_model.h"

namespace ladder {
namespace {

class Checkpoint : public testing::Test {
 protected:
  Checkpoint() {
    saved_.fill(1);
    saved_.save(dir_.path(), 100);
  }

  /// Loading fails with a message that mentions `part`, and no tensor changes.
  void expect_refused(const std::string& part) {
    SmallModel model;
    model.fill(9);
    const std::string before = model.bytes();
    EXPECT_USER_ERROR(model.load(dir_.path()), part);
    EXPECT_EQ(model.bytes(), before);
  }

  TempDir dir_;
  SmallModel saved_;
};

TEST_F(Checkpoint, RoundTrip) {
  SmallModel model;
  model.fill(9);
  EXPECT_EQ(model.load(dir_.path()), 100);
  EXPECT_EQ(model.bytes(), saved_.bytes());
}

TEST_F(Checkpoint, HoldsThreeFiles) {
  std::vector<std::string> names;
  for (const auto& [name, bytes] : files_in(dir_.path())) names.push_back(name);
  EXPECT_EQ(names, (std::vector<std::string>{"checkpoint.json", "model-100.safetensors",
                                             "optimizer-100.safetensors"}));
}

TEST_F(Checkpoint, OnlyTheLatestStays) {
  saved_.fill(2);
  saved_.save(dir_.path(), 200);
  EXPECT_EQ(files_in(dir_.path()).size(), 3u);
  SmallModel model;
  EXPECT_EQ(model.load(dir_.path()), 200);
  EXPECT_EQ(model.bytes(), saved_.bytes());
}

TEST_F(Checkpoint, TheSameStepTwice) {
  saved_.fill(2);
  saved_.save(dir_.path(), 100);
  EXPECT_EQ(files_in(dir_.path()).size(), 3u);
  SmallModel model;
  model.load(dir_.path());
  EXPECT_EQ(model.bytes(), saved_.bytes());
}

// The new save takes the name of the one that is gone, and must not then tidy it away.
TEST_F(Checkpoint, TheSameStepAfterAFileWasLost) {
  for (const char* lost : {"model-100.safetensors", "optimizer-100.safetensors"}) {
    std::filesystem::remove(dir_ / lost);
    saved_.save(dir_.path(), 100);
    EXPECT_EQ(files_in(dir_.path()).size(), 3u);
    SmallModel model;
    model.load(dir_.path());
    EXPECT_EQ(model.bytes(), saved_.bytes());
  }
}

TEST_F(Checkpoint, AFlippedBitIsDetected) {
  for (const char* name : {"model-100.safetensors", "optimizer-100.safetensors"}) {
    const std::string whole = read_file(dir_ / name);
    for (size_t i = 0; i < whole.size(); i += 97) {
      std::string damaged = whole;
      damaged[i] = static_cast<char>(damaged[i] ^ 4);
      write_file(dir_ / name, damaged);
      expect_refused(name);
    }
    write_file(dir_ / name, whole);
  }
}

TEST_F(Checkpoint, RefusesTruncatedAndMissingFiles) {
  const std::string name = "optimizer-100.safetensors";
  write_file(dir_ / name, read_file(dir_ / name).substr(0, 200));
  expect_refused(name);
  std::filesystem::remove(dir_ / name);
  expect_refused(name);
}

TEST_F(Checkpoint, RefusesAManifestThatIsNotOurs) {
  const std::string whole = read_file(dir_ / "checkpoint.json");
  const auto refuse = [&](const std::string& manifest) {
    write_file(dir_ / "checkpoint.json", manifest);
    expect_refused("not a checkpoint of Ladder");
    EXPECT_USER_ERROR(saved_.save(dir_.path(), 101), "not a checkpoint of Ladder");
    EXPECT_EQ(read_file(dir_ / "checkpoint.json"), manifest);
  };
  refuse(whole.substr(0, whole.size() / 2));
  refuse("");
  refuse("{}");
  refuse("[]");
  refuse(R"({"format": "another"})");
  nlohmann::json step = nlohmann::json::parse(whole);
  for (const nlohmann::json& none : {nlohmann::json(), nlohmann::json("x"), nlohmann::json(1.5),
                                     nlohmann::json(-5), nlohmann::json(UINT64_MAX)}) {
    step["state"]["step"] = none;
    refuse(step.dump());
  }
  step["state"].erase("step");
  refuse(step.dump());
  std::string outside = whole;
  outside.replace(outside.find("model-100"), 6, "../mod");
  refuse(outside);
}

TEST_F(Checkpoint, RefusesAnotherModel) {
  GptConfig config = small_config();
  config.heads = 4;  // the same shapes, but not the same model
  SmallModel model;
  model.config = config;
  EXPECT_USER_ERROR(model.load(dir_.path()), R"("heads":2)");
}

TEST_F(Checkpoint, RefusesAnotherOptimizer) {
  SmallModel model;
  const std::string before = model.bytes();
  const auto load = [&](std::vector<NamedTensor> optim) {
    TrainingState state = model.state();
    state.optim = std::move(optim);
    load_checkpoint(Ctx{}, dir_.path(), state);
  };
  EXPECT_USER_ERROR(load({}), "holds the optimizer state [code, count, m]; this run's has []");
  std::vector<NamedTensor> more = model.optim;
  more.push_back({"velocity", model.optim[1].tensor});
  EXPECT_USER_ERROR(load(more), "has [code, count, m, velocity]");
  std::vector<NamedTensor> other_shape = model.optim;
  other_shape[2].tensor = other_shape[2].tensor.first(2);
  EXPECT_USER_ERROR(load(other_shape), "count is I64 [3], not I64 [2]");
  EXPECT_EQ(model.bytes(), before);
}

TEST_F(Checkpoint, WithoutManifestWeightsAlone) {
  const TempDir foreign;
  std::filesystem::copy(dir_ / "model-100.safetensors", foreign / "model.safetensors");
  for (const std::string& path : {foreign.path(), foreign / "model.safetensors"}) {
    SmallModel model;
    model.fill(9);
    const std::string optim = SmallModel::bytes_of(model.optim[1].tensor);
    EXPECT_EQ(model.load(path), 0);
    EXPECT_EQ(SmallModel::bytes_of(model.params), SmallModel::bytes_of(saved_.params));
    EXPECT_EQ(SmallModel::bytes_of(model.optim[1].tensor), optim);
  }
}

TEST_F(Checkpoint, AStateOfNoTensorsIsLegal) {
  saved_.optim.clear();
  saved_.save(dir_.path(), 5);
  SmallModel model;
  model.optim.clear();
  EXPECT_EQ(model.load(dir_.path()), 5);
}

/// What a program has beside tensors.
struct Counter {
  int64_t count = 0;
  nlohmann::json state() const { return {{"count", count}}; }
  void set_state(const nlohmann::json& state) { count = state.at("count"); }
};

TEST_F(Checkpoint, HoldsNamedStates) {
  Counter saved{.count = 7}, loaded, fresh{.count = 3};
  TrainingState state = saved_.state();
  state.others = {named_state("counter", saved)};
  save_checkpoint(Ctx{}, dir_.path(), state, 1);
  // A state that the checkpoint does not know stays as it is.
  state.others = {named_state("counter", loaded), named_state("fresh", fresh)};
  EXPECT_EQ(load_checkpoint(Ctx{}, dir_.path(), state), 1);
  EXPECT_EQ(loaded.count, 7);
  EXPECT_EQ(fresh.count, 3);
}

TEST_F(Checkpoint, RefusesAMalformedState) {
  Counter counter{.count = 7};
  TrainingState state = saved_.state();
  state.others = {named_state("counter", counter)};
  save_checkpoint(Ctx{}, dir_.path(), state, 1);
  nlohmann::json manifest = nlohmann::json::parse(read_file(dir_ / "checkpoint.json"));
  for (const char* value : {"3", "[]", "{}", R"({"count": "x"})"}) {
    manifest["state"]["counter"] = nlohmann::json::parse(value);
    write_file(dir_ / "checkpoint.json", manifest.dump());
    saved_.fill(9);
    const std::string before = saved_.bytes();
    EXPECT_USER_ERROR(load_checkpoint(Ctx{}, dir_.path(), state),
                      "checkpoint.json: its state counter is malformed");
    EXPECT_EQ(saved_.bytes(), before);
  }
}

}  // namespace
}  // namespace ladder
