// Commits and snapshots on a disk that writes down what is done to it. Nothing is trained.
#include "labs/check.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <fcntl.h>
#include <filesystem>
#include <mutex>
#include <thread>
#include <unistd.h>

#include <sys/stat.h>
#include <sys/syscall.h>

#include "chapters/28_async_checkpoint/async_save.h"

namespace ladder::lab {
namespace {

namespace fs = std::filesystem;

/// Notes the calls of the functions below, which take the place of the C library's.
struct Disk {
  std::mutex mutex;
  std::vector<std::string> done;   ///< "sync INODE", "rename LINK", "remove FILE"
  int fail_at = -1;                ///< this one of them fails
  std::atomic<bool> held = false;  ///< whether runs of bytes wait
  std::atomic<bool> full = false;  ///< whether they fail
};
Disk disk;

/// Notes an operation. @return whether it fails
bool note(const char* what, const std::string& path) {
  const std::scoped_lock lock(disk.mutex);
  disk.done.push_back(fmt::format("{} {}", what, path));
  errno = EIO;
  return std::ssize(disk.done) - 1 == disk.fail_at;
}

/// Starts anew: the disk works, and has done nothing yet.
void forget(int fail_at = -1) {
  const std::scoped_lock lock(disk.mutex);
  disk.done.clear();
  disk.fail_at = fail_at;
}

/// What `disk` calls a file or a folder that is synchronized: its inode. Only /proc would tell its
/// path, and where a grader runs the program there is none.
std::string name_of(const struct stat& file) { return fmt::format("{}", file.st_ino); }

}  // namespace
}  // namespace ladder::lab

extern "C" {

int fsync(int fd) {
  struct stat file = {};
  return ::fstat(fd, &file) != 0 || ladder::lab::note("sync", ladder::lab::name_of(file)) ? -1 : 0;
}

int rename(const char* from, const char* to) noexcept {
  return ladder::lab::note("rename", to) ? -1 : ::renameat(AT_FDCWD, from, AT_FDCWD, to);
}

int remove(const char* path) noexcept {
  if (ladder::lab::note("remove", path)) return -1;
  if (::unlinkat(AT_FDCWD, path, 0) == 0) return 0;
  return errno == EISDIR || errno == EPERM ? ::unlinkat(AT_FDCWD, path, AT_REMOVEDIR) : -1;
}

ssize_t pwrite(int fd, const void* bytes, size_t size, off_t offset) {
  while (ladder::lab::disk.held) ::usleep(1000);
  errno = ENOSPC;
  return ladder::lab::disk.full ? -1 : ::syscall(SYS_pwrite64, fd, bytes, size, offset);
}

}  // extern "C"

namespace ladder::lab {
namespace {

/// A temporary directory, removed at the end.
class Folder {
 public:
  Folder() {
    std::string name = (fs::temp_directory_path() / "ladder-lab-XXXXXX").string();
    CHECK(::mkdtemp(name.data()), "no temporary directory");
    path = fs::canonical(name);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  ~Folder() {
    std::error_code ignored;
    fs::remove_all(path, ignored);
  }
  fs::path path;
};

/// A generation with the least that a checkpoint has.
void commit(SaveDirectory& home, int64_t step) {
  Generation generation(home, step);
  generation.create();
  Manifest manifest{.model = {}, .state = {{"step", step}}};
  for (const char* name : {kWeightsFile, kOptimizerFile}) {
    write_file(generation.file(name), "lab", "bytes");
    manifest.files[name] = {.bytes = 5, .hex = "00000000"};
  }
  write_file(generation.file(kConfigFile), "lab", "{}");
  manifest.write(generation.path());
  forget(disk.fail_at);
  generation.publish();
}

/// The step of the checkpoint; 0 if there is none that can be read.
int64_t found(const fs::path& dir) {
  try {
    const auto manifest = Manifest::find(dir);
    return manifest ? manifest->steps() : 0;
  } catch (const UserError&) {
    return 0;
  }
}

std::string sync_of(const fs::path& path) {
  struct stat file = {};
  return ::stat(path.c_str(), &file) == 0 ? "sync " + name_of(file) : "";
}

/// The place of an operation in disk.done, from `from` on; past its end if it is not there.
int64_t when(const std::string& operation, int64_t from = 0) {
  const auto begin = disk.done.begin() + std::min<int64_t>(from, std::ssize(disk.done));
  return std::find(begin, disk.done.end(), operation) - disk.done.begin();
}

void run_commits(Sheet& sheet, int64_t keep) {
  const Folder folder;
  SaveDirectory home(folder.path.string(), keep);
  const std::string dir = folder.path.string();
  for (int64_t step = 1; step <= 4; ++step) {
    commit(home, step);
    const int64_t all = std::ssize(disk.done), rename = when("rename " + dir + "/current");
    const auto words = [](bool is) { return is ? "yes" : "no"; };
    const auto row = [&](const char* what, bool is) {
      sheet.text(fmt::format("order/{}: step {}", what, step), words(is));
    };
    row("the switch is one rename", rename < all);
    row("files are durable before it",
        when(sync_of(home.generation(step))) < rename && when(sync_of(folder.path)) < rename);
    const int64_t durable = when(sync_of(folder.path), rename + 1);
    bool early = false;
    for (int64_t i = 0; i < std::min(durable, all); ++i)
      early =
          early || disk.done[static_cast<size_t>(i)].starts_with("remove " + dir + "/generation");
    row("nothing goes before it is durable", durable < all && !early);
  }
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder.path))
    names.push_back(entry.path().stem().string());  // the run is another each time
  std::ranges::sort(names);
  sheet.text("kept/names", fmt::format("{}", fmt::join(names, " ")));
  sheet.text("kept/checkpoint", fmt::format("{}", found(folder.path)));
}

void run_failures(Sheet& sheet) {
  int64_t wrong = -1;
  for (int i = 0, operations = 1; i < operations && wrong < 0; ++i) {
    const Folder folder;
    SaveDirectory home(folder.path.string(), 1);
    commit(home, 1);
    forget(i);
    bool saved = true;
    try {
      Generation generation(home, 2);
      generation.create();
      Manifest{
          .model = {}, .state = {{"step", 2}}, .files = {{kWeightsFile, {}}, {kOptimizerFile, {}}}}
          .write(generation.path());
      forget(i);
      generation.publish();
      operations = static_cast<int>(disk.done.size());
    } catch (const UserError&) {
      operations = i + 2;
      saved = false;
    }
    forget();
    const int64_t step = found(folder.path);
    if (step == 0 || (saved && step != 2)) wrong = i;
  }
  sheet.text("failures/operation that loses it", wrong < 0 ? "none" : fmt::format("{}", wrong));
}

GptConfig small() {
  return {.name = "lab",
          .layers = 1,
          .heads = 1,
          .channels = 8,
          .seq_len = 3,
          .positions = 4,
          .vocab = 5,
          .padded_vocab = 8};
}

/// A run of one rank.
struct Run {
  explicit Run(const RunOptions& run)
      : log(run,
            {.chapter = "lab",
             .gpt = layout.config(),
             .layout = run_layout(run, 1),
             .predicted = {}},
            arena, ctx) {}

  TrainingState state() const {
    return {.gpt = layout.config(), .layout = layout, .params = params, .optim = {{"m", m}}};
  }
  void fill(float value) {
    for (const ParamSpec& spec : layout.specs())
      for (const Tensor& tensor : {params, m})
        std::fill_n(tensor.data<float>() + spec.offset, spec.live(), value);
  }
  /// A step that leaves `value` in all weights; the next one changes them at once.
  void step(int64_t number, float value, bool saves) {
    log.goes_on(number);
    log.begin_step();
    fill(value);
    log.end_step({.step = number, .loss = 2, .grad_norm = 1, .lr = 1, .tokens = 1});
    if (saves) saving.save(ctx, state(), number + 1);
    fill(-1);
    ::usleep(10'000);
    saving.end_step(number);
  }

  ParamLayout layout{small()};
  Arena arena{};
  Ctx ctx;
  Tensor params = arena.zeros(Mem::Param, "params", Dtype::F32, {layout.size()});
  Tensor m = arena.zeros(Mem::Optim, "m", Dtype::F32, {layout.size()});
  Staging staging{arena, {.async = true}, params, {{"m", m}}};
  RunLog log;
  AsyncSave saving{log, staging};
};

struct Place {
  Place() {
    run.steps = 100;
    run.quiet = true;
    run.data = (folder.path / "text").string();
    run.save = (folder.path / "saved").string();
    write_file(run.data, "lab", std::string(1000, 'a'));
  }
  Folder folder;
  RunOptions run;
};

/// What the checkpoint holds.
void read(Sheet& sheet, const Place& place) {
  RunOptions options;
  options.quiet = true;
  Run into(options);
  into.fill(0);
  const int64_t steps = load_checkpoint(Ctx{}, place.run.save, into.state());
  sheet.text("snapshot/step", fmt::format("{}", steps));
  sheet.bits("snapshot/weights", into.params);
  sheet.bits("snapshot/moments", into.m);
}

void run_snapshot(Sheet& sheet) {
  const Place place;
  {
    Run run(place.run);
    disk.held = true;
    run.step(0, static_cast<float>(sheet.pick("value", {3, 5, 7})), true);
    run.step(1, 9, false);
    sheet.text("votes/committed while the disk holds still",
               fmt::format("{}", found(place.run.save)));
    disk.held = false;
    int64_t step = 2;
    while (step < 90 && found(place.run.save) == 0) run.step(step++, 9, false);
    sheet.text("votes/committed before the last step", step < 90 ? "yes" : "no");
    run.step(99, 9, false);
  }
  read(sheet, place);
}

void run_second(Sheet& sheet) {
  const Place place;
  {
    Run run(place.run);
    disk.held = true;
    run.step(0, 5, true);
    std::thread later([] {
      ::usleep(100'000);
      disk.held = false;
    });
    run.step(1, static_cast<float>(sheet.pick("value", {3, 5, 7})), true);
    later.join();
    run.step(99, 9, false);
  }
  read(sheet, place);
}

void run_full(Sheet& sheet) {
  const Place place;
  int64_t ended = -1;
  try {
    Run run(place.run);
    disk.full = true;
    for (ended = 0; ended < 90; ++ended) run.step(ended, 5, ended == 0);
  } catch (const UserError&) {
  }
  disk.full = false;
  sheet.text("votes/a full disk ends the run early", ended < 90 ? "yes" : "no");
}

}  // namespace

void cases(Sheet& sheet) {
  for (const int64_t keep : {int64_t{1}, sheet.pick<int64_t>("keep", {2, 3})})
    sheet.run(fmt::format("--keep {}", keep), [&] { run_commits(sheet, keep); });
  sheet.run("a disk that fails", [&] { run_failures(sheet); });
  const auto run = [&](const char* name, void (*body)(Sheet&)) {
    sheet.run(name, [&] {
      const struct Repair {
        ~Repair() { disk.held = disk.full = false; }
      } repair;
      body(sheet);
    });
  };
  run("a slow disk", run_snapshot);
  run("two saves", run_second);
  run("a full disk", run_full);
}

}  // namespace ladder::lab
