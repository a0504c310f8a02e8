// Checkpoints that every chapter refuses to load: missing, foreign, truncated, damaged, of another
// model or optimizer.
#include "tests/common/refusal.h"

namespace ladder::test {
namespace {

namespace fs = std::filesystem;

const std::string kSmall = "--layers 1 --channels 16 --heads 2 ";

class BadCheckpoint : public Refusals {
 protected:
  BadCheckpoint() { train(GetParam(), sgd("0.9") + "--steps 1 --save good"); }

  /// Flags of a small model under SGD.
  static std::string sgd(const std::string& momentum) {
    const bool first = GetParam() == "01_sgd";
    return kSmall + (first ? "" : "--optimizer sgd ") + "--momentum " + momentum + " ";
  }

  /// A copy of the good checkpoint, to be spoilt.
  fs::path copy(const std::string& name) const {
    fs::copy(path("good"), path(name));
    return path(name);
  }
  void expect_load_refused(const std::string& name, const std::string& says) const {
    expect_refused({sgd("0.9") + "--load " + name, says});
  }
};
INSTANTIATE_TEST_SUITE_P(Refuses, BadCheckpoint, ::testing::ValuesIn(chapters_from("01_sgd")),
                         chapter_name);

TEST_P(BadCheckpoint, TheGoodOneLoads) { train(GetParam(), sgd("0.9") + "--load good"); }

TEST_P(BadCheckpoint, Missing) {
  fs::create_directory(path("empty"));
  fs::remove(copy("no_weights") / "model-1.safetensors");
  fs::remove(copy("no_state") / "optimizer-1.safetensors");
  expect_load_refused("no_such", "--load no_such: no such file or directory");
  expect_load_refused("empty", "holds neither checkpoint.json nor model.safetensors");
  expect_load_refused("no_weights", "model-1.safetensors");
  expect_load_refused("no_state", "optimizer-1.safetensors");
}

TEST_P(BadCheckpoint, Foreign) {
  fs::create_directory(path("foreign"));
  write("foreign/checkpoint.json", R"({"format": "of somebody else", "step": 3})");
  expect_load_refused("text.txt", "not a safetensors file");
  expect_load_refused("foreign", "not a checkpoint of Ladder");
}

TEST_P(BadCheckpoint, TruncatedAnywhere) {
  for (const std::string file :
       {"checkpoint.json", "model-1.safetensors", "optimizer-1.safetensors"})
    for (const double share : {0.0, 0.01, 0.5, 0.99}) {
      const fs::path spoilt = copy("spoilt") / file;
      fs::resize_file(spoilt, static_cast<uintmax_t>(share * double(fs::file_size(spoilt))));
      expect_load_refused("spoilt", file);
      fs::remove_all(path("spoilt"));
    }
}

TEST_P(BadCheckpoint, OneDamagedByte) {
  for (const std::string file : {"model-1.safetensors", "optimizer-1.safetensors"}) {
    copy("spoilt");
    std::string bytes = read("spoilt/" + file);
    bytes[bytes.size() - 100] ^= 1;
    write("spoilt/" + file, bytes);
    expect_load_refused("spoilt", file + ": damaged");
    fs::remove_all(path("spoilt"));
  }
}

TEST_P(BadCheckpoint, DamagedState) {
  const nlohmann::json good = nlohmann::json::parse(read("good/checkpoint.json"));
  const auto refuse = [&](const char* name, const nlohmann::json& value, const char* says) {
    nlohmann::json spoilt = good;
    spoilt["state"].erase(name);
    if (!value.is_null()) spoilt["state"][name] = value;
    copy("spoilt");
    write("spoilt/checkpoint.json", spoilt.dump());
    expect_load_refused("spoilt", says);
    fs::remove_all(path("spoilt"));
  };
  for (const nlohmann::json& none : {nlohmann::json(), nlohmann::json("x"), nlohmann::json(1.5)})
    refuse("step", none, "checkpoint.json: not a checkpoint of Ladder");
  refuse("step", -5, "checkpoint.json: not a checkpoint of Ladder: its step is -5");
  if (GetParam() == "01_sgd") return;
  refuse("updates", "x", "checkpoint.json: its state updates is malformed");
  refuse("updates", -3, "checkpoint.json: its state updates is damaged: -3 updates");
}

TEST_P(BadCheckpoint, OfMoreStepsThanAskedFor) {
  train(GetParam(), sgd("0.9") + "--steps 2 --save two");
  expect_refused({sgd("0.9") + "--load two --steps 1",
                  "--load two: 2 steps are done; --steps must be at least that, not 1"});
}

TEST_P(BadCheckpoint, NoStepLeftToSave) {
  expect_refused({{sgd("0.9") + "--load good --steps 1", "--save saved: no step is left to take"},
                  {sgd("0.9") + "--steps 0", "--save saved: no step is left to take"}});
  // Without --save it is a look at a model.
  const auto looked = report(GetParam(), sgd("0.9") + "--load good --steps 1 --sample 4");
  EXPECT_EQ(looked["steps"], 1);
  EXPECT_TRUE(looked["final_loss"].is_null());
}

TEST_P(BadCheckpoint, OfAnotherModel) {
  const std::string first = GetParam() == "01_sgd" ? "--momentum 0.9 --load good "
                                                   : "--optimizer sgd --momentum 0.9 --load good ";
  for (const std::string other :
       {"--layers 2 --channels 16 --heads 2", "--layers 1 --channels 32 --heads 2",
        "--layers 1 --channels 16 --heads 4", "--model tiny --layers 1 --channels 16 --heads 2"})
    expect_refused({first + other, "a checkpoint of the model"});
}

TEST_P(BadCheckpoint, OfAnotherOptimizer) {
  expect_refused({sgd("0") + "--load good", "holds the optimizer state"});
  train(GetParam(), sgd("0") + "--steps 1 --save plain");
  expect_refused({sgd("0.9") + "--load plain", "holds the optimizer state"});
}

TEST_P(BadCheckpoint, ForeignFileInTheWayOfASave) {
  fs::create_directory(path("foreign"));
  write("foreign/checkpoint.json", "something else\n");
  expect_refused({sgd("0.9") + "--save foreign", "not a checkpoint of Ladder"});
}

TEST_P(BadCheckpoint, OutputsInTheWayOfIt) {
  expect_refused(
      {{sgd("0.9") + "--load good --trace good/checkpoint.json",
        "good/checkpoint.json: no output may lie in the directory of --load"},
       {sgd("0.9") + "--load good/model-1.safetensors --report good/model-1.safetensors",
        "good/model-1.safetensors is both --load and an output"},
       {sgd("0.9") + "--save later/ --timeline later/timeline.json",
        "later/timeline.json: no output may lie in the directory of --save"},
       {sgd("0.9") + "--save later --trace ./later", "./later is both --save and an output"},
       {sgd("0.9") + "--save later/than/this --trace later",
        "--trace later: a file, but --save later/than/this has it as a directory"}});
}

}  // namespace
}  // namespace ladder::test
