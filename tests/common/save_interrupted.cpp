// A save that is interrupted anywhere, or meets a disk that fails, leaves a whole checkpoint.

#include <csignal>

#include <sys/resource.h>
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
  /// Whichever it is, and the next save leaves nothing of the interrupted one.
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

  /// Calls save() in a process of its own. Returns how it ended, as a shell says it: 0 saved, 2
  /// refused, 128 + n died of signal n.
  template <class Save>
  static int in_a_process(Save save) {
    const pid_t child = ::fork();
    if (child == 0) ::_exit(user_error(save).empty() ? 0 : 2);
    int status = 0;
    ::waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

  /// Saves step 200 in a process that may write files of at most `bytes`.
  int save_with_limit(rlim_t bytes) const {
    return in_a_process([&] {
      std::signal(SIGXFSZ, SIG_IGN);
      const rlimit limit{bytes, bytes};
      ::setrlimit(RLIMIT_FSIZE, &limit);
      new_.save(dir_.path(), 200);
    });
  }

  TempDir dir_;
  SmallModel old_, new_;
  RepairDisk repair_;
};

TEST_F(InterruptedSave, KilledAtAnyOperation) {
  int killed = 0;
  for (int ended = 1; ended != 0; ++killed) {
    ended = in_a_process([&] {
      bad_disk = {.die_at = killed};
      new_.save(dir_.path(), 200);
    });
    EXPECT_TRUE(ended == 0 || ended == 128 + SIGKILL) << ended;
    expect_a_whole_one_and_no_rubbish();
  }
  EXPECT_GT(killed, 20) << "operations of a save";
}

TEST_F(InterruptedSave, AnyOperationThatFails) {
  bool saved = false;
  for (int i = 0; !saved; ++i) {
    const std::string before = dir_ / std::filesystem::read_symlink(dir_ / "current").string();
    bad_disk = {.fail_at = i};
    const std::string message = user_error([&] { new_.save(dir_.path(), 200); });
    saved = bad_disk.operations <= i;
    bad_disk = {};
    // Even behind the switch, which may not have reached the disk.
    if (!message.empty()) {
      EXPECT_EQ(SmallModel().load(before), 100) << message;
    }
    EXPECT_TRUE(message.empty() || message.find("cannot ") != message.npos) << message;
    expect_a_whole_one_and_no_rubbish();
  }
}

TEST_F(InterruptedSave, AFullDiskLeavesTheOldOneAndNoRubbish) {
  const auto before = files_in(dir_.path());
  const auto size = [&](const char* name) { return read_file(dir_ / name).size(); };
  const rlim_t weights = size("current/model.safetensors");
  ASSERT_LT(weights, size("current/optimizer.safetensors"));
  // Within the weights, and after them.
  for (const rlim_t bytes : {rlim_t{0}, rlim_t{100}, rlim_t{9000}, weights}) {
    EXPECT_EQ(save_with_limit(bytes), 2) << bytes;
    expect_whole(100);
    EXPECT_EQ(files_in(dir_.path()), before);
  }
}

TEST(FirstSave, ThatFailsLeavesNoFile) {
  const TempDir dir;
  const RepairDisk repair;
  SmallModel model;
  model.fill(1);
  bool saved = false;
  for (int i = 0; !saved; ++i) {
    bad_disk = {.fail_at = i};
    const std::string message = user_error([&] { model.save(dir / "a/b", 1); });
    saved = bad_disk.operations <= i;
    bad_disk = {};
    // What is behind the switch may be there; all of it, then.
    if (std::filesystem::exists(dir / "a/b/current")) {
      EXPECT_EQ(model.load(dir / "a/b"), 1) << message;
    } else {
      for (const auto& [name, bytes] : files_in(dir.path()))
        EXPECT_TRUE(name.ends_with('/')) << name << " at " << i << " " << message;
    }
    std::filesystem::remove_all(dir / "a");
  }
}

}  // namespace
}  // namespace ladder
