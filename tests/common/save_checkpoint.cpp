// Checkpoints: everything comes back bit for bit, or nothing is touched.

#include <cmath>
#include <limits>
#include <utility>

#include "common/save/checkpoint.h"
#include "common/save/hf_config.h"
#include "common/save/manifest.h"
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

  std::string file(const std::string& name) const { return dir_ / ("current/" + name); }

  /// Loading fails with a message that mentions `part`, and no tensor changes.
  void expect_refused(const std::string& part) {
    SmallModel model;
    model.fill(9);
    const std::string before = model.bytes();
    EXPECT_USER_ERROR(model.load(dir_.path()), part);
    EXPECT_TRUE(model.bytes() == before);
  }

  std::string save(std::vector<NamedState> others) const {
    SaveDirectory home(dir_.path());
    TrainingState state = saved_.state();
    state.others = std::move(others);
    return save_checkpoint(home, state, 100);
  }
  int64_t load(std::vector<NamedState> others) const {
    TrainingState state = saved_.state();
    state.others = std::move(others);
    return load_checkpoint(Ctx{}, dir_.path(), state);
  }

  TempDir dir_;
  SmallModel saved_;
};

TEST_F(Checkpoint, RoundTrip) {
  SmallModel model;
  model.fill(9);
  EXPECT_EQ(model.load(dir_.path()), 100);
  EXPECT_TRUE(model.bytes() == saved_.bytes());
}

// One generation, and what from_pretrained() of the transformers looks for.
TEST_F(Checkpoint, HoldsOneGeneration) {
  auto files = files_in(dir_.path());
  const std::string generation = std::filesystem::read_symlink(dir_ / "current").string();
  EXPECT_TRUE(generation.starts_with("generation-100.")) << generation;
  EXPECT_EQ(files["model.safetensors"], "-> current/model.safetensors");
  EXPECT_EQ(files["config.json"], "-> current/config.json");
  EXPECT_EQ(files[generation + "/config.json"], hf_config(saved_.config).dump(2) + "\n");
  std::vector<std::string> names;
  for (const auto& [name, bytes] : files) names.push_back(name);
  EXPECT_EQ(names, (std::vector<std::string>{
                       "config.json", "current", generation + "/", generation + "/checkpoint.json",
                       generation + "/config.json", generation + "/model.safetensors",
                       generation + "/optimizer.safetensors", "model.safetensors"}));
}

// The damaged one stays, too: its other files may be intact.
TEST_F(Checkpoint, TheNextAfterOneThatHasLostAFileIsWhole) {
  for (const char* lost : {"model.safetensors", "optimizer.safetensors", "checkpoint.json"}) {
    std::filesystem::remove(file(lost));
    saved_.save(dir_.path(), 100);
    SmallModel model;
    model.load(dir_.path());
    EXPECT_TRUE(model.bytes() == saved_.bytes());
  }
}

// People copy a checkpoint to keep it: with its links, without links, or only the generation.
TEST_F(Checkpoint, ACopyLoads) {
  namespace fs = std::filesystem;
  const TempDir copies;
  const auto all = fs::copy_options::recursive;
  fs::copy(dir_.path(), copies / "links", all | fs::copy_options::copy_symlinks);
  fs::copy(dir_.path(), copies / "files", all);
  fs::copy(dir_ / "current", copies / "generation", all);
  for (const char* name : {"links", "files", "generation"}) {
    SmallModel model;
    EXPECT_EQ(model.load(copies / name), 100) << name;
    EXPECT_TRUE(model.bytes() == saved_.bytes()) << name;
  }
}

TEST_F(Checkpoint, AFlippedBitIsDetected) {
  for (const char* name : {"model.safetensors", "optimizer.safetensors"}) {
    const std::string whole = read_file(file(name));
    for (size_t i = 0; i < whole.size(); i += 97) {
      std::string damaged = whole;
      damaged[i] = static_cast<char>(damaged[i] ^ 4);
      write_file(file(name), damaged);
      expect_refused(name);
    }
    write_file(file(name), whole);
  }
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
  EXPECT_TRUE(model.bytes() == before);
}

TEST_F(Checkpoint, WithoutManifestWeightsAlone) {
  const TempDir foreign;
  std::filesystem::copy(file("model.safetensors"), foreign / "model.safetensors");
  for (const std::string& path : {foreign.path(), foreign / "model.safetensors"}) {
    SmallModel model;
    model.fill(9);
    const std::string optim = SmallModel::bytes_of(model.optim[1].tensor);
    EXPECT_EQ(model.load(path), 0);
    EXPECT_EQ(SmallModel::bytes_of(model.params), SmallModel::bytes_of(saved_.params));
    EXPECT_EQ(SmallModel::bytes_of(model.optim[1].tensor), optim);
  }
}

/// A state that is no tensor.
struct Counter {
  int64_t count = 0;
  nlohmann::json state() const { return {{"count", count}}; }
  void set_state(const nlohmann::json& state) { count = state.at("count"); }
};

TEST_F(Checkpoint, HoldsNamedStates) {
  Counter saved{.count = 7}, loaded, fresh{.count = 3};
  save({named_state("counter", saved)});
  EXPECT_EQ(load({named_state("counter", loaded), named_state("fresh", fresh)}), 100);
  EXPECT_EQ(loaded.count, 7);
  EXPECT_EQ(fresh.count, 3) << "a state that the checkpoint does not know stays as it is";
  NamedState needed = named_state("fresh", fresh);
  needed.needed = true;
  EXPECT_USER_ERROR(load({needed}), "checkpoint.json: holds no state fresh");
}

TEST_F(Checkpoint, WithANanOrAnInfinityIsNotSaved) {
  const auto before = files_in(dir_.path());
  const float inf = std::numeric_limits<float>::infinity();
  double number = 0;
  const NamedState state{.name = "average",
                         .get =
                             [&] {
                               return nlohmann::json{{"is", {number}}};
                             },
                         .set = [](const nlohmann::json&) {}};
  const ParamSpec& last = saved_.layout.specs().back();
  for (const float bad : {std::nanf(""), -std::nanf(""), inf, -inf}) {
    const auto refuse = [&](float& at, const std::string& what) {
      const float good = std::exchange(at, bad);
      EXPECT_EQ(save({state}), what + " holds a NaN or an infinity");
      at = good;
    };
    refuse(saved_.params.data<float>()[0], saved_.layout.specs()[0].name);
    refuse(saved_.params.data<float>()[last.offset + last.live() - 1], last.name);
    refuse(saved_.optim[1].tensor.data<float>()[5], "m");
    number = double{bad};
    EXPECT_EQ(save({state}), "the state average holds a NaN or an infinity");
    number = 0;
  }
  EXPECT_EQ(files_in(dir_.path()), before);
  saved_.params.data<float>()[0] = std::numeric_limits<float>::max();
  EXPECT_EQ(save({state}), "");
}

}  // namespace
}  // namespace ladder
