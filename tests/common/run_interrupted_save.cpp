// A save that is interrupted anywhere leaves the previous checkpoint whole, and a directory with
// other files in it loses none.

#include <csignal>

#include <sys/resource.h>
#include <sys/wait.h>

#include "common/run/checkpoint.h"
#include "tests/common/run_files.h"
#include "tests/common/run_model.h"

namespace ladder {
namespace {

class InterruptedSave : public testing::Test {
 protected:
  InterruptedSave() {
    old_.fill(1);
    old_.save(dir_.path(), 100);
    new_.fill(2);
  }

  void expect_old_is_whole() {
    SmallModel model;
    EXPECT_EQ(model.load(dir_.path()), 100);
    EXPECT_EQ(model.bytes(), old_.bytes());
  }

  /// Saves step 200 in a process that may write files of at most `bytes`, and that dies of the
  /// signal the system then sends, or sees the write fail. Returns how it ended, as a shell says
  /// it: 0 saved, 2 refused, 128 + n died of signal n.
  int save_with_limit(rlim_t bytes, bool die) {
    const pid_t child = ::fork();
    if (child == 0) {
      std::signal(SIGXFSZ, die ? SIG_DFL : SIG_IGN);
      const rlimit limit{bytes, bytes};
      ::setrlimit(RLIMIT_FSIZE, &limit);
      const bool refused = !user_error([&] { new_.save(dir_.path(), 200); }).empty();
      ::_exit(refused ? 2 : 0);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

  TempDir dir_;
  SmallModel old_, new_;
};

TEST_F(InterruptedSave, DyingInAnyWriteLeavesTheOldOne) {
  // From before the first byte of the weights to the middle of them.
  for (const rlim_t bytes : {0, 1, 100, 4000, 9000}) {
    EXPECT_EQ(save_with_limit(bytes, true), 128 + SIGXFSZ) << bytes;
    expect_old_is_whole();
  }
  EXPECT_GT(files_in(dir_.path()).size(), 3u) << "nothing was interrupted";
}

TEST_F(InterruptedSave, AFullDiskLeavesTheOldOneAndNoRubbish) {
  const auto before = files_in(dir_.path());
  const auto size = [&](const char* name) { return before.at(name).size(); };
  const rlim_t weights = size("model-100.safetensors");
  ASSERT_LT(weights, size("optimizer-100.safetensors"));
  // Within the weights, and after them.
  for (const rlim_t bytes : {rlim_t{0}, rlim_t{100}, rlim_t{9000}, weights}) {
    EXPECT_EQ(save_with_limit(bytes, false), 2) << bytes;
    expect_old_is_whole();
    EXPECT_EQ(files_in(dir_.path()), before);
  }
}

TEST_F(InterruptedSave, LeftoversDoNoHarm) {
  // As if the save of step 200 died before its manifest: whole weights, half an optimizer.
  write_file(dir_ / "model-200.safetensors", "whole weights, as far as anyone knows");
  write_file(dir_ / "optimizer-200.safetensors.77-0.tmp", "half an opt");
  write_file(dir_ / "checkpoint.json.77-0.tmp", "{");
  expect_old_is_whole();
  new_.save(dir_.path(), 200);
  SmallModel model;
  EXPECT_EQ(model.load(dir_.path()), 200);
  EXPECT_EQ(model.bytes(), new_.bytes());
}

TEST_F(InterruptedSave, NoManifestNoCheckpoint) {
  std::filesystem::remove(dir_ / "checkpoint.json");
  SmallModel model;
  EXPECT_USER_ERROR(model.load(dir_.path()), "neither checkpoint.json nor model.safetensors");
}

TEST(SaveDirectory, LosesNoForeignFile) {
  const TempDir dir;
  const std::map<std::string, std::string> foreign = {{"model-1.safetensors", "mine"},
                                                      {"optimizer-1.safetensors", "mine too"},
                                                      {"model.safetensors", "downloaded"},
                                                      {"notes.txt", "hello"}};
  for (const auto& [name, bytes] : foreign) write_file(dir / name, bytes);
  SmallModel model;
  for (int64_t step : {1, 2, 1}) model.save(dir.path(), step);
  const auto after = files_in(dir.path());
  for (const auto& [name, bytes] : foreign) EXPECT_EQ(after.at(name), bytes) << name;
  EXPECT_EQ(after.size(), foreign.size() + 3);
}

TEST(SaveDirectory, IsProbedBeforeAndCreatedByTheFirstSave) {
  const TempDir dir;
  check_save_dir(dir / "a/b");
  EXPECT_TRUE(files_in(dir.path()).empty());
  SmallModel model;
  model.save(dir / "a/b", 1);
  EXPECT_EQ(files_in(dir / "a/b").size(), 3U);
}

TEST(SaveDirectory, RefusesWhatCannotBeWritten) {
  const TempDir dir;
  write_file(dir / "file", "old");
  EXPECT_USER_ERROR(check_save_dir(dir / "file"), "--save");
  EXPECT_USER_ERROR(check_save_dir(dir / "file/inside"), "--save");
  EXPECT_USER_ERROR(check_save_dir("/proc/self/nothing"), "--save /proc/self/nothing: ");
  // What only creating it shows.
  std::filesystem::create_symlink("nowhere", dir / "link");
  EXPECT_USER_ERROR(check_save_dir(dir / "link"), "/link: ");
  EXPECT_TRUE(std::filesystem::is_symlink(dir / "link"));
  EXPECT_USER_ERROR(check_save_dir(dir / "a" + "/" + std::string(256, 'x')), "--save");
  EXPECT_FALSE(std::filesystem::exists(dir / "a"));
  SmallModel model;
  EXPECT_USER_ERROR(model.save(dir / "file", 1), "--save");
  EXPECT_EQ(read_file(dir / "file"), "old");
}

}  // namespace
}  // namespace ladder
