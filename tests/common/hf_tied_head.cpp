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

class TiedFiles : public HfModel {
 protected:
  TiedFiles() : HfModel(tied_config()) { write_config(); }
};

TEST_F(TiedFiles, HoldNoHead) {
  EXPECT_FALSE(names().contains(kHead));
  EXPECT_EQ(names().size(), model_.layout.specs().size());
  EXPECT_EQ(config_["tie_word_embeddings"], true);
  expect_loads(dir_.path());
}

TEST_F(TiedFiles, ACheckpointGoesOnWithTheFlagAlone) {
  SmallModel own, other{.config = tied_config()};
  own.fill(3);
  model_.save(dir_ / "tied", 3);
  own.save(dir_ / "own", 3);
  EXPECT_EQ(other.load(dir_ / "tied"), 3);
  EXPECT_EQ(other.bytes(), model_.bytes());
  expect_refused(dir_ / "own", "tied_head is none there and true here;");
  EXPECT_USER_ERROR(own.load(dir_ / "tied"), "tied_head is true there and none here;");
}

// A copy of the embedding is left out again, unless config.json says that the head goes its own
// way.
TEST_F(TiedFiles, WithoutTheFlagTheHeadIsACopy) {
  SmallModel own;
  EXPECT_EQ(load(own), "");
  EXPECT_EQ(SmallModel::bytes_of(own.tensor(kHead)),
            SmallModel::bytes_of(own.tensor("transformer.wte.weight")));
  write_weights(path_, own);
  config_ = hf_config(own.config);
  write_config();
  expect_refused("tie_word_embeddings is false; legal is a run without --tied-head");
  std::filesystem::remove(dir_ / "config.json");
  expect_loads(dir_.path());
  own.fill(1);
  write_weights(path_, own);
  expect_refused("lm_head.weight is not the embedding; legal is a run without");
}

}  // namespace
}  // namespace ladder
