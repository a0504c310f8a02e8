// A run may read a large text between the check of its options and the lock of --save. Another
// program may save in that time.

#include "common/run/run.h"
#include "common/save/checkpoint.h"
#include "tests/common/run_files.h"
#include "tests/common/run_model.h"

namespace ladder {
namespace {

class SavedMeanwhile : public testing::Test {
 protected:
  SavedMeanwhile() {
    options_.data = dir_ / "text";
    options_.steps = 2;
    options_.quiet = true;
    write_file(options_.data, "text");
  }
  std::unique_ptr<ladder::Run> start() {
    const RunPlan plan{.chapter = "01_sgd", .gpt = small_config(), .layout = {}, .predicted = {}};
    return std::make_unique<ladder::Run>(options_, plan, arena_, ctx_);
  }

  TempDir dir_;
  RunOptions options_;
  Arena arena_;
  Ctx ctx_;
};

TEST_F(SavedMeanwhile, IsNotReplaced) {
  options_.save = dir_ / "save";
  options_.check();
  SmallModel().save(options_.save, 1);
  const auto before = files_in(options_.save);
  EXPECT_USER_ERROR(start(), "/save: holds a checkpoint; legal are --load ");
  EXPECT_EQ(files_in(options_.save), before);
  options_.load = options_.save;
  start();
  options_.load = "";
  options_.overwrite = true;
  start();
}

// Not even where no link names it.
TEST_F(SavedMeanwhile, IsNotReplacedWithoutItsLink) {
  options_.save = dir_ / "save";
  SmallModel().save(options_.save, 1);
  for (const char* link : {"current", "model.safetensors", "config.json"})
    std::filesystem::remove(options_.save + "/" + link);
  const auto before = files_in(options_.save);
  EXPECT_USER_ERROR(options_.check(), "/save: holds a checkpoint; legal are --load ");
  EXPECT_USER_ERROR(start(), "/save: holds a checkpoint; legal are --load ");
  EXPECT_EQ(files_in(options_.save), before);
}

TEST_F(SavedMeanwhile, MayLeaveNoStepToTake) {
  options_.load = dir_ / "load";
  SmallModel().save(options_.load, 1);
  options_.check();
  SmallModel().save(options_.load, 3);
  EXPECT_USER_ERROR(start()->goes_on(3), "3 steps are done; --steps must be at least that, not 2");
  options_.save = dir_ / "save";
  EXPECT_USER_ERROR(start()->goes_on(2), "no step is left to take before it: 2 of --steps 2");
}

}  // namespace
}  // namespace ladder
