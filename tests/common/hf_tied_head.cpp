// Checkpoints and files of a model whose head is the embedding, and of models of the other kind.
#include <filesystem>

#include "tests/common/hf_model.h"

namespace ladder {
namespace {

const std::string kHead = "lm_head.weight";

GptConfig tied_config() {
  GptConfig config = small_config();
  config.tied_head = true;
  return config;
}

class TiedFiles : public testing::Test {
 protected:
  TiedFiles() {
    own_.fill(1);
    tied_.fill(3);
  }

  std::string save_weights(const std::string& name, const SmallModel& model) const {
    const std::string path = dir_ / name;
    std::filesystem::create_directory(path);
    write_weights(path + "/model.safetensors", model);
    write_file(path + "/config.json", hf_config(model.config).dump());
    return path;
  }
  static std::string load(const std::string& path, SmallModel& model) {
    return user_error([&] { model.load(path); });
  }
  /// Refused in one line, and nothing is modified.
  static void expect_refused(const std::string& path, SmallModel& model, const std::string& why) {
    const std::string before = model.bytes(), message = load(path, model);
    EXPECT_NE(message.find(why), std::string::npos) << message;
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
    EXPECT_EQ(model.bytes(), before);
  }

  TempDir dir_;
  SmallModel own_, tied_{.config = tied_config()};
};

TEST_F(TiedFiles, HoldNoHead) {
  const std::string path = save_weights("tied", tied_);
  const SafetensorsReader file(path + "/model.safetensors");
  EXPECT_FALSE(file.entries().contains(kHead));
  EXPECT_EQ(file.entries().size(), tied_.layout.specs().size());
  EXPECT_EQ(nlohmann::json::parse(read_file(path + "/config.json"))["tie_word_embeddings"], true);
  SmallModel other{.config = tied_config()};
  EXPECT_EQ(load(path, other), "");
  EXPECT_EQ(SmallModel::bytes_of(other.params), SmallModel::bytes_of(tied_.params));
}

TEST_F(TiedFiles, ACheckpointGoesOn) {
  tied_.save(dir_ / "tied", 3);
  SmallModel other{.config = tied_config()};
  EXPECT_EQ(other.load(dir_ / "tied"), 3);
  EXPECT_EQ(other.bytes(), tied_.bytes());
}

TEST_F(TiedFiles, ACheckpointOfTheOtherKindIsRefused) {
  tied_.save(dir_ / "tied", 3);
  own_.save(dir_ / "own", 3);
  expect_refused(dir_ / "tied", own_, "tied_head is true there and none here;");
  expect_refused(dir_ / "own", tied_, "tied_head is none there and true here;");
}

TEST_F(TiedFiles, WithoutTheFlagTheHeadIsACopy) {
  SmallModel other;
  EXPECT_EQ(load(save_weights("tied", tied_), other), "");
  const auto bytes_of = [](const SmallModel& model, const std::string& name) {
    return SmallModel::bytes_of(model.layout.tensor(model.params, model.layout.spec(name)));
  };
  EXPECT_EQ(bytes_of(other, kHead), bytes_of(tied_, "transformer.wte.weight"));

  // Now the head is in the file, and equal: with the flag it is left out again, unless config.json
  // says that it goes its own way.
  const std::string path = save_weights("copied", other);
  expect_refused(path, tied_, "tie_word_embeddings is false; legal is a run without --tied-head");
  std::filesystem::remove(path + "/config.json");
  SmallModel again{.config = tied_config()};
  EXPECT_EQ(load(path, again), "");
  EXPECT_EQ(SmallModel::bytes_of(again.params), SmallModel::bytes_of(tied_.params));
}

TEST_F(TiedFiles, AnotherHeadIsRefused) {
  const std::string path = save_weights("own", own_);
  std::filesystem::remove(path + "/config.json");
  expect_refused(path, tied_, "lm_head.weight is not the embedding; legal is a run without");
}

}  // namespace
}  // namespace ladder
