// A save that is interrupted anywhere, or meets a disk that fails, leaves a whole checkpoint.

#include <csignal>

#include <sys/wait.h>

#include "common/save/checkpoint.h"
#include "tests/common/bad_disk.h"
#include "tests/common/run_files.h"
#include "tests/common/run_model.h"

namespace ladder {
namespace {

constexpr size_t kFiles = 8;  // of a checkpoint, links and directories among them

class InterruptedSave : public testing::Test {
 protected:
  InterruptedSave() {
    old_.fill(1);
    old_.save(dir_.path(), 100);
    new_.fill(2);
  }

  void expect_whole(int64_t steps) const {
    SmallModel model;
    EXPECT_EQ(model.load(dir_.path()), steps);
    EXPECT_TRUE(model.bytes() == (steps == 100 ? old_ : new_).bytes());
  }
  /// There is a whole checkpoint, the old one or the new one. The next save removes what the
  /// interrupted one has left.
  void expect_a_whole_one_and_no_rubbish() const {
    SmallModel model;
    const int64_t steps = model.load(dir_.path());
    EXPECT_TRUE(steps == 100 || steps == 200) << steps;
    expect_whole(steps);
    testing::internal::CaptureStderr();
    old_.save(dir_.path(), 100);
    testing::internal::GetCapturedStderr();
    EXPECT_EQ(files_in(dir_.path()).size(), kFiles);
    expect_whole(100);
  }

  TempDir dir_;
  SmallModel old_, new_;
  RepairDisk repair_;
};

TEST_F(InterruptedSave, KilledAtAnyOperation) {
  int killed = 0;
  for (bool saved = false; !saved; ++killed) {
    const pid_t child = ::fork();
    if (child == 0) {
      bad_disk = {.die_at = killed};
      new_.save(dir_.path(), 200);
      ::_exit(0);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    saved = WIFEXITED(status) && WEXITSTATUS(status) == 0;
    EXPECT_TRUE(saved || (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL)) << status;
    expect_a_whole_one_and_no_rubbish();
  }
  EXPECT_GT(killed, 20) << "operations of a save";
}

TEST_F(InterruptedSave, AnyOperationThatFails) {
  std::string before;
  const auto save = [&] {
    before = dir_ / std::filesystem::read_symlink(dir_ / "current").string();
    return user_error([&] { new_.save(dir_.path(), 200); });
  };
  fail_each_operation(save, [&](const std::string& message) {
    // Even after the switch, because it may not have reached the disk.
    if (!message.empty()) {
      EXPECT_EQ(SmallModel().load(before), 100) << message;
    }
    EXPECT_TRUE(message.empty() || message.find("cannot ") != message.npos) << message;
    expect_a_whole_one_and_no_rubbish();
  });
}

TEST(FirstSave, ThatFailsLeavesNoFile) {
  const TempDir dir;
  SmallModel model;
  model.fill(1);
  const auto save = [&] { return user_error([&] { model.save(dir / "a/b", 1); }); };
  fail_each_operation(save, [&](const std::string& message) {
    // If the failure came after the switch, the whole checkpoint is there.
    if (std::filesystem::exists(dir / "a/b/current")) {
      EXPECT_EQ(model.load(dir / "a/b"), 1) << message;
    } else {
      for (const auto& [name, bytes] : files_in(dir.path()))
        EXPECT_TRUE(name.ends_with('/')) << name << " " << message;
    }
    std::filesystem::remove_all(dir / "a");
  });
}

}  // namespace
}  // namespace ladder
