// The directory of --save. Foreign files are never touched, only one program at a time saves there,
// and a program that reads at the same time finds a whole checkpoint.

#include <algorithm>
#include <csignal>
#include <unistd.h>

#include <sys/file.h>
#include <sys/wait.h>

#include "common/save/checkpoint.h"
#include "common/save/directory.h"
#include "common/save/manifest.h"
#include "tests/common/bad_disk.h"
#include "tests/common/run_files.h"
#include "tests/common/run_model.h"

namespace ladder {
namespace {

namespace fs = std::filesystem;
using Files = std::map<std::string, std::string>;

/// Step `step`, whose tensors depend on it.
void save_step(const std::string& dir, int64_t step, int64_t keep = 1) {
  SmallModel model;
  model.fill(static_cast<float>(step));
  model.save(dir, step, keep);
}

/// Loads a checkpoint, which must be whole. Its step does not matter.
void expect_whole(const std::string& dir) {
  SmallModel found, wanted;
  const int64_t step = found.load(dir);
  wanted.fill(static_cast<float>(step));
  EXPECT_TRUE(found.bytes() == wanted.bytes()) << step;
}

/// A process that saves in a directory until it is killed.
class SavingProcess {
 public:
  SavingProcess(const std::string& dir, int64_t first) : pid_(::fork()) {
    if (pid_ > 0) return;
    bad_disk.fsync_ms = 1;
    for (int64_t step = first;; ++step) user_error([&] { save_step(dir, step); });
  }
  SavingProcess(const SavingProcess&) = delete;
  SavingProcess& operator=(const SavingProcess&) = delete;
  ~SavingProcess() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }

 private:
  pid_t pid_;
};

class SaveDir : public testing::Test {
 protected:
  RepairDisk repair_;
  TempDir dir_;
};

TEST_F(SaveDir, RefusesWhatCannotBeWritten) {
  write_file(dir_ / "file", "old");
  const auto open = [](const std::string& dir) { const SaveDirectory home(dir); };
  EXPECT_USER_ERROR(open(dir_ / "file"), "/file: cannot be a directory");
  EXPECT_USER_ERROR(open(dir_ / "file/inside"), "/file/inside: cannot be a directory");
  EXPECT_USER_ERROR(open("/proc/self/nothing"), "--save /proc/self/nothing: ");
  fs::create_symlink("nowhere", dir_ / "link");
  EXPECT_USER_ERROR(open(dir_ / "link"), "/link: ");
  EXPECT_TRUE(fs::is_symlink(dir_ / "link"));
  EXPECT_EQ(read_file(dir_ / "file"), "old");
}

TEST_F(SaveDir, NeedsSymbolicLinks) {
  bad_disk.no_links = true;
  EXPECT_USER_ERROR(SaveDirectory(dir_ / "a"),
                    "/a: cannot hold a symbolic link: Operation not permitted; legal is a file "
                    "system that can");
  EXPECT_TRUE(files_in(dir_ / "a").empty());
}

TEST_F(SaveDir, LosesNoForeignFile) {
  fs::create_directories(dir_ / "generation-1.1/mine");
  fs::create_directories(dir_ / "generation-2.x");
  fs::create_symlink("generation-2.x", dir_ / "generation-3.3");
  const Files foreign = {{"model-1.safetensors", "mine"},
                         {"generation-1.1/model.safetensors", "mine too"},
                         {"generation-2.x/model.safetensors", "and mine"},
                         {"generation-4.4", "a file"},
                         {"notes.txt", "hello"}};
  for (const auto& [name, bytes] : foreign) write_file(dir_ / name, bytes);
  const auto before = files_in(dir_.path());
  for (int64_t step : {1, 2, 1}) save_step(dir_.path(), step);
  const auto after = files_in(dir_.path());
  for (const auto& [name, bytes] : before) EXPECT_EQ(after.at(name), bytes) << name;
  EXPECT_EQ(after.size(), before.size() + 8);
}

TEST_F(SaveDir, RefusesForeignFilesInTheWay) {
  for (const char* name : {"checkpoint.json", "model.safetensors", "config.json", "current"}) {
    const std::string dir = dir_ / name + std::string(".d");
    const std::string says = "holds " + std::string(name) + ", which no --save has put there";
    const auto refuse = [&] {
      const auto before = files_in(dir);
      EXPECT_USER_ERROR(save_step(dir, 1), says);
      EXPECT_EQ(files_in(dir), before);
      fs::remove_all(dir + "/" + name);
    };
    fs::create_directory(dir);
    write_file(dir + "/" + name, "mine");
    refuse();
    fs::create_directory(dir + "/" + name);
    refuse();
    fs::create_symlink("elsewhere", dir + "/" + name);
    refuse();
  }
}

TEST_F(SaveDir, RemovesWhatAKilledProgramLeft) {
  save_step(dir_.path(), 1);
  const auto before = files_in(dir_.path());
  fs::create_directory(dir_ / "generation-2.7");
  write_file(dir_ / "generation-2.7/model.safetensors", "whole, as far as anyone knows");
  write_file(dir_ / "generation-2.7/optimizer.safetensors.partial", "half an opt");
  fs::create_symlink("generation-2.7", dir_ / "generation-2.7/current");
  expect_whole(dir_.path());
  testing::internal::CaptureStderr();
  save_step(dir_.path(), 1);
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "note: " + dir_ / "generation-2.7" + " is removed, which a killed program had left\n");
  EXPECT_EQ(files_in(dir_.path()).size(), before.size());
  expect_whole(dir_.path());
}

/// The steps of all generations, in order.
std::vector<int64_t> steps_in(const std::string& dir) {
  std::vector<int64_t> steps;
  for (const auto& entry : fs::directory_iterator(dir))
    if (entry.is_directory() && !entry.is_symlink())
      steps.push_back(Manifest::read(entry.path()).steps());
  std::ranges::sort(steps);
  return steps;
}

/// The same. All of them load.
std::vector<int64_t> kept_in(const std::string& dir) {
  for (const auto& entry : fs::directory_iterator(dir))
    if (entry.is_directory() && !entry.is_symlink()) expect_whole(entry.path().string());
  return steps_in(dir);
}

TEST_F(SaveDir, KeepsAsManyAsItIsTold) {
  using Steps = std::vector<int64_t>;
  for (int64_t step = 1; step <= 4; ++step) save_step(dir_.path(), step, 2);
  EXPECT_EQ(kept_in(dir_.path()), (Steps{3, 4}));
  // This one is whole, so it counts, although its program was killed before the commit.
  const fs::path late = dir_ / "generation-5.9";
  fs::copy(dir_ / "current", late);
  Manifest manifest = Manifest::read(late);
  manifest.state["step"] = 5;
  manifest.write(late);
  fs::create_symlink("generation-5.9", late / "current");
  save_step(dir_.path(), 6, 3);
  EXPECT_EQ(steps_in(dir_.path()), (Steps{4, 5, 6}));
  fs::remove_all(late);
  // A run that goes on from an older checkpoint writes step 4 again.
  save_step(dir_.path(), 4, 3);
  EXPECT_EQ(kept_in(dir_.path()), (Steps{4, 4, 6}));
  SmallModel model;
  EXPECT_EQ(model.load(dir_.path()), 4);
  save_step(dir_.path(), 7, 1);
  EXPECT_EQ(kept_in(dir_.path()), (Steps{7}));
}

/// A copy of a directory of --save as `rsync --no-links` or a bucket of objects leaves it, with the
/// oldest files last.
void copy_without_links(const std::string& from, const std::string& to) {
  fs::copy(from, to, fs::copy_options::recursive | fs::copy_options::skip_symlinks);
  auto time = fs::file_time_type::clock::now();
  for (const std::string& name : names_in(to))
    fs::last_write_time(to + "/" + name + "/checkpoint.json", time -= std::chrono::hours(1));
}

TEST_F(SaveDir, ACopyWithoutLinksHoldsItsNewestCheckpoint) {
  for (const int64_t step : {80, 100, 120}) save_step(dir_ / "a", step, 5);
  copy_without_links(dir_ / "a", dir_ / "b");
  fs::create_directory(dir_ / "b/generation-200.1");
  write_file(dir_ / "b/generation-200.1/model.safetensors", "of a save that was killed");
  testing::internal::CaptureStderr();
  SmallModel model;
  EXPECT_EQ(model.load(dir_ / "b"), 120);
  expect_whole(dir_ / "b");
  EXPECT_NE(testing::internal::GetCapturedStderr().find("no link names a checkpoint there; "
                                                        "generation-120."),
            std::string::npos);
  testing::internal::CaptureStderr();
  save_step(dir_ / "b", 130, 3);
  testing::internal::GetCapturedStderr();
  EXPECT_EQ(kept_in(dir_ / "b"), (std::vector<int64_t>{100, 120, 130}));
}

// --overwrite, and going on from an older checkpoint.
TEST_F(SaveDir, GivesUpThoseWithMoreStepsFirst) {
  for (const int64_t step : {10, 20, 30, 1, 2, 3}) save_step(dir_.path(), step, 3);
  EXPECT_EQ(kept_in(dir_.path()), (std::vector<int64_t>{1, 2, 3}));
}

// Its other files may be intact.
TEST_F(SaveDir, LosesNothingOfADamagedCheckpoint) {
  for (const char* damage : {"short", "gone"}) {
    const std::string dir = dir_ / damage;
    for (int64_t step = 1; step <= 2; ++step) {
      save_step(dir, step, 2);
      const fs::path file = dir + "/current/optimizer.safetensors";
      if (step == 1 && damage == std::string("short")) fs::resize_file(file, 100);
      if (step == 1 && damage == std::string("gone")) fs::remove(file);
    }
    const Files before = files_in(dir);
    testing::internal::CaptureStderr();
    save_step(dir, 3, 5);
    EXPECT_EQ(testing::internal::GetCapturedStderr(), "") << damage;
    const Files after = files_in(dir);
    for (const auto& [name, bytes] : before)
      EXPECT_TRUE(name == "current" || (after.contains(name) && after.at(name) == bytes)) << name;
  }
}

TEST_F(SaveDir, KeepsThoseBeforeUntilTheNextIsDurable) {
  using Steps = std::vector<int64_t>;
  const auto prepare = [&] {
    fs::remove_all(dir_ / "a");
    for (const int64_t step : {1, 2}) save_step(dir_ / "a", step, 2);
  };
  prepare();
  const auto save = [&] { return user_error([&] { save_step(dir_ / "a", 3, 2); }); };
  fail_each_operation(save, [&](const std::string& message) {
    testing::internal::CaptureStderr();
    SaveDirectory(dir_ / "a", 2);  // removes what is half removed
    testing::internal::GetCapturedStderr();
    const Steps kept = kept_in(dir_ / "a");
    EXPECT_TRUE(kept == (Steps{1, 2}) || kept == (Steps{2, 3}) || kept == (Steps{1, 2, 3}))
        << message;
    EXPECT_TRUE(!message.empty() || kept.back() == 3);
    prepare();
  });
}

// If the power fails, what was not synchronized may be lost, and what came after it may be there.
TEST_F(SaveDir, NamesAreDurableBeforeTheSwitchAndTheSwitchBeforeAnyRemoval) {
  const std::string dir = fs::canonical(dir_.path());
  save_step(dir, 1);
  const fs::path old = fs::canonical(dir + "/current");
  std::vector<std::string> done;
  bad_disk.done = &done;
  save_step(dir, 2);
  bad_disk.done = nullptr;
  const fs::path generation = fs::canonical(dir + "/current");
  const auto of = [&](const std::string& operation) { return std::ranges::find(done, operation); };
  const auto renamed = of("rename " + dir + "/current");
  EXPECT_LT(of("fsync " + generation.string()), renamed);
  EXPECT_LT(of("fsync " + dir), renamed);
  EXPECT_LT(std::find(renamed, done.end(), "fsync " + dir),
            of("remove " + (old / kManifestFile).string()));
}

TEST_F(SaveDir, IsOneProgramsAtATime) {
  {
    const SaveDirectory home(dir_.path());
    EXPECT_USER_ERROR(SaveDirectory(dir_.path()), "another program is saving there");
    EXPECT_USER_ERROR(save_step(dir_.path(), 2), "another program is saving there");
  }
  save_step(dir_.path(), 2);
  expect_whole(dir_.path());
}

// Without locks a second program may save there, too. Then nothing of the other's is removed.
TEST_F(SaveDir, WithoutLocksNothingIsRemoved) {
  using Steps = std::vector<int64_t>;
  bad_disk.no_locks = true;
  SmallModel model;
  model.fill(1);
  testing::internal::CaptureStderr();
  SaveDirectory one(dir_.path()), other(dir_.path());
  EXPECT_TRUE(testing::internal::GetCapturedStderr().starts_with(
      "note: --save " + dir_.path() + ": no locks there: no other program may save there"));
  save_checkpoint(one, model.state(), 1);
  save_checkpoint(other, model.state(), 5);
  save_checkpoint(one, model.state(), 2);
  EXPECT_EQ(model.load(dir_.path()), 2);
  EXPECT_EQ(steps_in(dir_.path()), (Steps{1, 2, 5}));
  fs::create_directory(dir_ / "generation-9.9");  // of one that is under way, or was killed
  testing::internal::CaptureStderr();
  SaveDirectory third(dir_.path());
  testing::internal::GetCapturedStderr();
  EXPECT_TRUE(fs::exists(dir_ / "generation-9.9"));
}

TEST_F(SaveDir, IsWholeWhoeverSavesAndIsKilled) {
  save_step(dir_.path(), 1);
  for (const bool locks : {true, false}) {
    bad_disk.no_locks = !locks;
    for (int round = 0; round < 8; ++round) {
      const SavingProcess one(dir_.path(), 1000 * round);
      {
        const SavingProcess other(dir_.path(), 1000 * round + 500);
        for (int i = 0; i < 10; ++i) expect_whole(dir_.path());
      }
      for (int i = 0; i < 10; ++i) expect_whole(dir_.path());
    }
    expect_whole(dir_.path());
  }
  bad_disk.no_locks = false;
  testing::internal::CaptureStderr();
  save_step(dir_.path(), 1);
  testing::internal::GetCapturedStderr();
  EXPECT_EQ(files_in(dir_.path()).size(), 8U) << "all that was left is removed";
}

}  // namespace
}  // namespace ladder
