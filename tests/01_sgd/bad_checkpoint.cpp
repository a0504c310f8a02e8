// Checkpoints that every chapter refuses to load: missing, of other programs, truncated, damaged,
// of another model or optimizer. And checkpoints that no save may replace.
#include "common/save/manifest.h"
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

  /// Copies the good checkpoint, to be spoilt. Returns where the files of the copy lie.
  fs::path copy(const std::string& name) const {
    fs::copy(path("good"), path(name),
             fs::copy_options::recursive | fs::copy_options::copy_symlinks);
    return path(name) / "current";
  }
  void expect_load_refused(const std::string& name, const std::string& says) const {
    expect_refused({sgd("0.9") + "--load " + name, says});
  }
};
INSTANTIATE_TEST_SUITE_P(Refuses, BadCheckpoint, ::testing::ValuesIn(some_chapters_from("01_sgd")),
                         chapter_name);

TEST_P(BadCheckpoint, TheGoodOneLoads) { train(GetParam(), sgd("0.9") + "--load good"); }

TEST_P(BadCheckpoint, Missing) {
  fs::create_directory(path("empty"));
  fs::remove(copy("no_manifest") / "checkpoint.json");
  fs::remove(copy("no_weights") / "model.safetensors");
  fs::remove(copy("no_state") / "optimizer.safetensors");
  expect_load_refused("no_such", "--load no_such: no such file or directory");
  expect_load_refused("empty", "holds neither a checkpoint nor model.safetensors");
  expect_load_refused("no_manifest", "checkpoint.json: no such file");
  expect_load_refused("no_weights", "/model.safetensors: no such file");
  expect_load_refused("no_state", "/optimizer.safetensors: no such file");
}

TEST_P(BadCheckpoint, TruncatedAnywhere) {
  for (const std::string file : {"checkpoint.json", "model.safetensors", "optimizer.safetensors"})
    for (const double share : {0.0, 0.01, 0.5, 0.99}) {
      const fs::path spoilt = copy("spoilt") / file;
      fs::resize_file(spoilt, static_cast<uintmax_t>(share * double(fs::file_size(spoilt))));
      expect_load_refused("spoilt", file);
      fs::remove_all(path("spoilt"));
    }
}

TEST_P(BadCheckpoint, DamagedState) {
  if (GetParam() == "01_sgd") return;
  const Manifest good = Manifest::read(path("good/current"));
  const auto refuse = [&](const nlohmann::json& value, const std::string& says) {
    Manifest spoilt = good;
    spoilt.state["optimizer"] = value;
    spoilt.write(copy("spoilt"));
    expect_load_refused("spoilt", "checkpoint.json: " + says);
    fs::remove_all(path("spoilt"));
  };
  refuse("x", "its state optimizer is malformed");
  refuse({{"name", "sgd"}}, "its state optimizer is malformed");
  refuse({{"name", "sgd"}, {"updates", -3}},
         "its state optimizer: -3 is no number from 0 to 1099511627776");
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
  const auto looked = report(GetParam(), sgd("0.9") + "--load good --steps 1");
  EXPECT_EQ(looked["steps"], 1);
  EXPECT_TRUE(looked["final_loss"].is_null());
}

TEST_P(BadCheckpoint, OfAnotherModel) {
  const std::string first = GetParam() == "01_sgd" ? "--momentum 0.9 --load good "
                                                   : "--optimizer sgd --momentum 0.9 --load good ";
  const std::string says = "a checkpoint of another model: ";
  for (const auto& [other, difference] : std::initializer_list<std::array<std::string, 2>>{
           {"--layers 2 --channels 16 --heads 2", "layers is 1 there and 2 here"},
           {"--layers 1 --channels 32 --heads 2", "channels is 16 there and 32 here"},
           {"--layers 1 --channels 16 --heads 4", "heads is 2 there and 4 here"},
           {"--model tiny --layers 1 --channels 16 --heads 2",
            "positions is 16 there and 64 here"}})
    expect_refused({first + other, says + difference});
}

TEST_P(BadCheckpoint, OfAnotherOptimizer) {
  expect_refused({sgd("0") + "--load good", "holds the optimizer state"});
  train(GetParam(), sgd("0") + "--steps 1 --save plain");
  expect_refused({sgd("0.9") + "--load plain", "holds the optimizer state"});
}

// A save replaces a checkpoint only if the run goes on from it, or if --overwrite is given.
TEST_P(BadCheckpoint, InTheWayOfASave) {
  const auto refuse = [&](const std::string& flags) {
    std::vector<std::string> args = small_run(sgd("0.9") + flags);
    args.insert(args.end(), {"--save", "good"});
    expect_refused(args,
                   "--save good: holds a checkpoint; legal are --load good, which goes on from it, "
                   "--overwrite, which gives it up, and another directory");
  };
  refuse("");
  train(GetParam(), sgd("0.9") + "--steps 1 --save other");
  refuse("--load other");
  expect_refused(small_run("--overwrite"), "--overwrite needs --save");
  expect_refused(small_run("--keep 2"), "--keep needs --save");
  if (GetParam() == "38_pretrain") expect_refused(small_run("--async"), "--async needs --save");

  std::vector<std::string> goes_on = small_run(sgd("0.9") + "--load ./good/ --steps 2");
  goes_on.insert(goes_on.end(), {"--save", "good"});
  EXPECT_EQ(run(GetParam(), goes_on).status, 0);
  EXPECT_EQ(Manifest::find(path("good"))->steps(), 2);
  train(GetParam(), sgd("0.9") + "--steps 1 --save good");  // with --overwrite
  EXPECT_EQ(Manifest::find(path("good"))->steps(), 1);
}

TEST_P(BadCheckpoint, OutputsInTheWayOfIt) {
  const std::string model = "good/model.safetensors";
  expect_refused(
      {{sgd("0.9") + "--load good --trace good/checkpoint.json", "would write in --load good"},
       {sgd("0.9") + "--load good --trace good/current/trace.jsonl", "would write in --load good"},
       {sgd("0.9") + "--load " + model + " --report " + model, "would write in --load " + model},
       {sgd("0.9") + "--load " + model + " --report good/config.json",
        "would write in --load good"},
       {sgd("0.9") + "--save later/ --timeline later/t.json", "would write in --save later/"},
       {sgd("0.9") + "--save later --trace ./later", "would write in --save later"},
       {sgd("0.9") + "--save later/than/this --trace later", "would write in --save later/"}});
}

}  // namespace
}  // namespace ladder::test
