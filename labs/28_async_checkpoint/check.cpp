// Saves of two ranks on a disk that stops, or is full, when the check says so. Nothing is trained.
#include "labs/check.h"

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <fcntl.h>
#include <filesystem>
#include <thread>
#include <unistd.h>

#include <sys/syscall.h>

#include "chapters/28_async_checkpoint/async_save.h"
#include "common/comm/run_ranks.h"
#include "common/save/manifest.h"

namespace ladder::lab {
namespace {

namespace fs = std::filesystem;

/// What the function below does, which takes the place of the C library's.
struct Disk {
  std::atomic<int> held = 0, full = 0;  ///< ranks whose bytes wait, or fail: 1 << rank
  std::atomic<bool> waited = false;     ///< that took too long: training waits for the disk
};
Disk disk;

/// Whose numbers these are: those of rank 1 are negative.
int rank_of(const void* bytes) { return (static_cast<const uint8_t*>(bytes)[3] >> 7) + 1; }

}  // namespace
}  // namespace ladder::lab

extern "C" ssize_t pwrite(int fd, const void* bytes, size_t size, off_t offset) {
  using ladder::lab::disk;
  const int rank = ladder::lab::rank_of(bytes);
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while ((disk.held & rank) != 0 && !disk.waited) {
    disk.waited = std::chrono::steady_clock::now() > end;
    ::usleep(1000);
  }
  if ((disk.full & rank) == 0) return ::syscall(SYS_pwrite64, fd, bytes, size, offset);
  errno = ENOSPC;
  return -1;
}

namespace ladder::lab {
namespace {

/// The step of the checkpoint; 0 if there is none that can be read.
int64_t found(const fs::path& dir) {
  try {
    const auto manifest = Manifest::find(dir);
    return manifest ? manifest->steps() : 0;
  } catch (const UserError&) {
    return 0;
  }
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

/// A rank of two, with its chunk of the model.
struct Rank {
  Rank(const RunOptions& options, Comm& c, const Sheet& s, bool async)
      : comm(c),
        sheet(s),
        layout(ParamLayout(small(), comm.size()).shard(comm.rank())),
        staging(arena, {.async = async}, layout.own(params), {{"m", m}, {"v", v}}),
        run(options,
            {.chapter = "lab",
             .gpt = layout.config(),
             .layout = run_layout(options, 1),
             .predicted = {}},
            arena, ctx, &comm) {}

  TrainingState state() const {
    return {.layout = layout,
            .params = layout.own(params),
            .optim = {{"m", m}, {"v", v}},
            .comm = &comm};
  }
  /// All numbers differ, and depend on the step.
  void fill(int64_t step) const {
    for (const auto& [name, tensor] : {std::pair("weights", params), {"m", m}, {"v", v}}) {
      const auto rank = static_cast<uint64_t>(comm.rank());
      const std::vector<float> noise = sheet.normals(name, tensor.size(), rank);
      for (const ParamSpec& spec : layout.specs())
        for (int64_t i = spec.offset; i < spec.offset + spec.live(); ++i)
          tensor.data<float>()[i] =
              (comm.rank() == 1 ? -1.0f : 1.0f) *
              (std::abs(noise[static_cast<size_t>(i)]) + static_cast<float>(step + 1));
    }
  }
  /// A step. What it changes is changed again at once, as by the next one.
  void step(int64_t number, bool saves = false) {
    run.goes_on(number);
    run.begin_step();
    fill(number);
    run.end_step({.step = number, .loss = 2, .grad_norm = 1, .lr = 1, .tokens = 1});
    if (saves) saving.save(ctx, state(), number + 1);
    fill(number + 1000);
    ::usleep(10'000);
    saving.end_step(number);
  }
  bool first() const { return comm.rank() == 0; }

  Comm& comm;
  const Sheet& sheet;
  ParamLayout layout;
  Arena arena{};
  Ctx ctx;
  Tensor params = arena.zeros(Mem::Param, "params", Dtype::F32, {layout.size()});
  Tensor m = arena.zeros(Mem::Optim, "m", Dtype::F32, {layout.size()});
  Tensor v = arena.zeros(Mem::Optim, "v", Dtype::F32, {layout.size()});
  Staging staging;
  Run run;
  AsyncSave saving{run, staging};
};

struct Place {
  Place() {
    run.steps = 100;
    run.quiet = true;
    run.keep = 9;
    fs::remove_all(folder);
    fs::create_directory(folder);
    run.data = (folder / "text").string();
    run.save = (folder / "saved").string();
    write_file(run.data, "lab", std::string(1000, 'a'));
  }
  /// Runs the body on two ranks. @return the status with which the run ends
  int ranks(const Sheet& sheet, const std::function<void(Rank&)>& body, bool async = true) const
      try {
    run_threads(
        2,
        [&](Comm& comm) {
          Rank rank(run, comm, sheet, async);
          body(rank);
          comm.barrier();
        },
        std::chrono::seconds(60));
    return 0;
  } catch (const RankFailed& e) {
    return e.failure().status;
  }

  fs::path folder = "place";  ///< made anew
  RunOptions run;
};

/// What the checkpoint of a step holds.
void read(Sheet& sheet, const Place& place, int64_t step) {
  Arena arena;
  const ParamLayout layout(small());
  const auto alloc = [&](const char* name) {
    return arena.zeros(Mem::Param, name, Dtype::F32, {layout.size()});
  };
  const Tensor params = alloc("params"), m = alloc("m"), v = alloc("v");
  const TrainingState state{.layout = layout, .params = params, .optim = {{"m", m}, {"v", v}}};
  for (const auto& entry : fs::directory_iterator(place.run.save))
    if (entry.path().filename().string().starts_with(fmt::format("generation-{}.", step)))
      load_checkpoint(Ctx{}, entry.path().string(), state);
  for (const auto& [name, tensor] : {std::pair("weights", params), {"m", m}, {"v", v}})
    sheet.bits(fmt::format("snapshot/{} of step {}", name, step), tensor);
}

const char* yes_or_no(bool is) { return is ? "yes" : "no"; }

/// The disk of one rank stops while training goes on.
void run_slow(Sheet& sheet) {
  const Place place;
  int64_t early = -1, step = 99;
  const int slow = sheet.pick("rank", {1, 2});
  place.ranks(sheet, [&](Rank& rank) {
    rank.comm.barrier();
    disk.held = slow;
    rank.comm.barrier();
    rank.step(0, true);
    for (int64_t i = 1; i < 6; ++i) rank.step(i);
    if (rank.first()) early = found(place.run.save);
    rank.comm.barrier();
    disk.held = 0;
    for (int64_t i = 6; i < 90; ++i) {
      rank.step(i);
      const bool there = rank.first() && found(place.run.save) > 0;
      if (rank.first()) step = i;
      if (rank.run.most(there ? 1 : 0) != 0) break;
    }
    rank.step(99);
  });
  sheet.text("votes/committed while a disk stops", early == 0 ? "no" : "yes");
  sheet.text("votes/training waits for a disk that stops",
             early < 0 ? "it came to its end before" : yes_or_no(disk.waited));
  sheet.text("votes/committed before the last step", yes_or_no(step < 89));
  read(sheet, place, 1);
}

/// A save that is due while the one before is under way; then one after the last step.
void run_second(Sheet& sheet) {
  Place place;
  place.run.quiet = false;
  const fs::path said = place.folder / "said";
  std::fflush(stdout);
  const int out = ::dup(STDOUT_FILENO);
  const int file = ::open(said.c_str(), O_WRONLY | O_CREAT, 0600);
  ::dup2(file, STDOUT_FILENO);
  int64_t first = -1;
  place.ranks(sheet, [&](Rank& rank) {
    rank.comm.barrier();
    disk.held = 3;
    rank.comm.barrier();
    rank.step(0, true);
    std::thread later([&] {
      ::usleep(100'000);
      if (rank.first()) disk.held = 0;
    });
    try {
      rank.step(1, true);
    } catch (...) {
      later.join();
      throw;
    }
    later.join();
    if (rank.first()) first = found(place.run.save);
    rank.step(99, true);
  });
  std::fflush(stdout);
  ::dup2(out, STDOUT_FILENO);
  ::close(out);
  ::close(file);
  const std::string text = read_small_file(said.string(), 1 << 20);
  const size_t line = text.find("step 1: waited ");
  sheet.text("votes/the first of two is committed", yes_or_no(first >= 1));
  sheet.text(
      "votes/says that it waited",
      yes_or_no(line != text.npos && text.find(" s for the save of step 0", line) != text.npos));
  sheet.text("votes/committed after the last step", fmt::format("{}", found(place.run.save)));
  for (const int64_t step : {1, 2, 100}) read(sheet, place, step);
}

/// The disk of one rank is full, while the other's stops for 20 steps, or some seconds.
void run_full(Sheet& sheet) {
  constexpr int64_t kSteps = 20;
  const Place place;
  std::atomic<int64_t> steps = 0;
  disk.full = sheet.pick("rank", {1, 2});
  disk.held = 3 - disk.full;
  std::thread later([&] {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(4);
    while (steps < kSteps && std::chrono::steady_clock::now() < end) ::usleep(1000);
    disk.held = 0;
  });
  const int status = place.ranks(sheet, [&](Rank& rank) {
    for (int64_t i = 0; i < 90; ++i) {
      rank.step(i, i == 0);
      if (rank.first()) ++steps;
    }
  });
  later.join();
  sheet.text("votes/a full disk ends the run",
             fmt::format("status {}, goes on: {}", status, yes_or_no(steps >= kSteps)));
}

/// Without --async a checkpoint is there when save() returns.
void run_at_once(Sheet& sheet) {
  const Place place;
  place.ranks(
      sheet, [&](Rank& rank) { rank.step(0, true); }, /*async=*/false);
  sheet.text("votes/committed without --async", fmt::format("{}", found(place.run.save)));
}

}  // namespace

void cases(Sheet& sheet) {
  const auto run = [&](const std::string& name, const std::function<void(Sheet&)>& body) {
    sheet.run(name, [&] {
      disk.held = disk.full = 0;
      disk.waited = false;
      body(sheet);
    });
  };
  run("a slow disk", run_slow);
  run("two saves", run_second);
  run("a full disk", run_full);
  run("without --async", run_at_once);
}

}  // namespace ladder::lab
