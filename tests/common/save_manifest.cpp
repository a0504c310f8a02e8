// The manifest of a checkpoint: taken as it was written, or refused in one line that names it.

#include "common/save/directory.h"
#include "common/save/manifest.h"
#include "tests/common/run_files.h"
#include "tests/common/run_model.h"

namespace ladder {
namespace {

using nlohmann::json;

class AManifest : public testing::Test {
 protected:
  AManifest() {
    manifest_.model = Manifest::sizes_of(small_config());
    manifest_.state = {{"step", 7}, {"noise_scale", {{"signal", 1.5e-5}, {"steps", 3}}}};
    manifest_.files = {{"model.safetensors", {.bytes = 1000, .hex = "01234567"}},
                       {"optimizer.safetensors", {.bytes = 2000, .hex = "fedcba98"}}};
    manifest_.write(dir_.path());
    text_ = read_file(path_);
  }

  void expect_refused(const std::string& text, const std::string& why = "") const {
    write_file(path_, text);
    expect_refused_as_it_is(why);
  }
  void expect_refused_as_it_is(const std::string& why = "") const {
    const std::string message = user_error([&] { Manifest::read(dir_.path()); });
    EXPECT_TRUE(message.starts_with(path_ + ": not a checkpoint of Ladder")) << message;
    EXPECT_NE(message.find(why), message.npos) << message;
    EXPECT_EQ(message.find('\n'), message.npos) << message;
  }

  TempDir dir_;
  std::string path_ = dir_ / "checkpoint.json";
  Manifest manifest_;
  std::string text_;
};

TEST_F(AManifest, RoundTrip) {
  const Manifest read = Manifest::read(dir_.path());
  EXPECT_EQ(read.model, manifest_.model);
  EXPECT_EQ(read.state, manifest_.state);
  EXPECT_EQ(read.files, manifest_.files);
  EXPECT_EQ(read.steps(), 7);
}

// A state may hold a path.
TEST_F(AManifest, BytesThatAreNotUtf8AreReplaced) {
  manifest_.state["path"] = "\xff.bin";
  manifest_.write(dir_.path());
  EXPECT_EQ(Manifest::read(dir_.path()).state["path"], "\xef\xbf\xbd.bin");
}

// Whole configurations would be too long for a message, and the shortened texts might be equal.
TEST_F(AManifest, NamesWhatDiffers) {
  GptConfig config = preset("moe-nano");
  const json here = Manifest::sizes_of(config);
  config.experts.chosen = 3;
  config.rope.theta = 5e5;
  EXPECT_EQ(Manifest::difference(Manifest::sizes_of(config), here),
            "experts/chosen is 3 there and 2 here, theta is 500000.0 there and 10000.0 here; legal "
            "are the flags of the model that was saved");
  EXPECT_TRUE(Manifest::difference({{"layers", 1}}, {{"layers", 1}, {"bias", false}})
                  .starts_with("bias is none there and false here;"));
  for (const json& foreign : {json(), json(7), json::array(), json::object()})
    EXPECT_NE(Manifest::difference(foreign, here).find("channels is none there and 64 here"),
              std::string::npos)
        << foreign;
}

TEST_F(AManifest, EveryFlippedBitIsRefused) {
  // In place: to write a file anew takes far longer.
  std::fstream file(path_, std::ios::in | std::ios::out | std::ios::binary);
  const auto put = [&](size_t i, int c) {
    file.seekp(static_cast<std::streamoff>(i)).put(static_cast<char>(c)).flush();
  };
  for (size_t i = 0; i < text_.size(); ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      put(i, text_[i] ^ (1 << bit));
      expect_refused_as_it_is();
    }
    put(i, text_[i]);
  }
  EXPECT_EQ(Manifest::read(dir_.path()).steps(), 7);
}

TEST_F(AManifest, OfSomebodyElse) {
  for (const char* text : {"{}", "[]", "3", "null", R"({"format": 3})"}) expect_refused(text);
  expect_refused(R"({"format": "another"})", R"(its format is "another"; legal is ladder)");
}

TEST_F(AManifest, OfTheFormBefore) {
  std::string old = text_;
  old.replace(old.find("checkpoint 3"), 12, "checkpoint 2");
  expect_refused(old, R"(its format is "ladder checkpoint 2"; legal is ladder checkpoint 3)");
}

TEST_F(AManifest, OfOtherFiles) {
  const auto refuse = [&](const std::string& name, const std::string& why) {
    Manifest other = manifest_;
    auto file = other.files.extract("model.safetensors");
    file.key() = name;
    other.files.insert(std::move(file));
    other.write(dir_.path());
    expect_refused_as_it_is(why);
  };
  for (const char* name : {"../model.safetensors", "model-1-of-2.safetensors", "config.json"})
    refuse(name, std::string("it has a file \"") + name);
  refuse("optimizer.safetensors", "it lacks the file");
}

TEST_F(AManifest, ImpossibleSteps) {
  for (const json& step :
       {json(), json("x"), json(1.5), json(-5), json(kMaxCount + 1), json(INT64_MAX),
        json(UINT64_MAX), json::array({1}), json(1.0), json(true)}) {
    manifest_.state["step"] = step;
    manifest_.write(dir_.path());
    expect_refused(read_file(path_), "its step: " + step.dump() + " is no number from 0 to");
  }
  manifest_.state.erase("step");
  manifest_.write(dir_.path());
  expect_refused(read_file(path_));
}

}  // namespace
}  // namespace ladder
