// --events DIR: what a run measures, as event files for TensorBoard.
//
//   DIR/curves/     what no layout changes: losses, learning rate, norms, tokens, tensors
//   DIR/machine/    what depends on layout or machine: times, speed, memory, loss scale
//
// With --event-clock step, the time of an event is its step, and the bytes of curves/ are the same
// on every layout.
//
// A resumed run writes a further file, whose name sorts after the last one. A session start in it
// tells readers to drop what they have read of later steps. Going back writes one, too.
//
// MFU and HFU, model and hardware FLOP utilization, divide operations a second by the peak of a
// device's 16-bit products:
//   mfu   6 (L M + C V) + 12 L C T per token, where M counts the elements of a block's matrices and
//         V the padded vocabulary. The lower triangle of attention counts as a whole square (PaLM,
//         arXiv 2204.02311, appendix B)
//   hfu   the products that were computed, those of recomputation among them
#pragma once

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <fcntl.h>
#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

#include <fmt/format.h>
#include <sys/file.h>

#include "chapters/29_monitor/event_file.h"
#include "common/comm/comm.h"
#include "common/error.h"
#include "common/input_file.h"
#include "common/run/command_line.h"
#include "common/run/ending.h"
#include "common/run/log.h"
#include "common/run/options.h"
#include "common/run/report.h"
#include "common/run/tokenizer.h"

namespace ladder {

enum class EventClock : uint8_t { Wall, Step };
constexpr auto names_of(EventClock) { return std::array{"wall", "step"}; }

struct EventOptions {
  std::string dir;
  EventClock clock = EventClock::Wall;
  double peak_tflops = 0;

  void add_to(CommandLine& line) {
    line.group("29_monitor");
    line.add("--events", dir, "directory for TensorBoard's event files");
    line.add("--event-clock", clock, "the time of an event: wall, or step (equal on every layout)",
             {.needs = {"--events"}});
    line.add("--peak-tflops", peak_tflops,
             "TFLOP/s of a device's 16-bit products, for mfu and hfu; 0: as its maker says",
             {.needs = {"--events"}});
  }

  /// @throws UserError
  void check() const {
    if (!(peak_tflops >= 0 && std::isfinite(peak_tflops)))
      throw UserError("--peak-tflops must be a finite number, at least 0, not {}", peak_tflops);
  }
};

/// What a machine did in a step.
struct MachineStep {
  double ms;         ///< of the whole step
  int64_t products;  ///< floating-point operations of this rank's matrix products
  double loss_scale;
};

/// The two folders. Rank 0 writes them, and other ranks write nothing.
class Events {
 public:
  /// @param plan chapter, model, layout
  /// @throws UserError if the directory holds files and nothing is loaded, or another run writes
  /// there
  Events(const EventOptions& options, const RunOptions& run, const RunPlan& plan,
         const LossTargets& targets, const Arena& arena, const Ctx& ctx, Log& log, const Comm& comm)
      : options_(options),
        plan_(plan),
        arena_(arena),
        log_(log),
        curves_(std::filesystem::path(options.dir) / "curves"),
        machine_(std::filesystem::path(options.dir) / "machine") {
    plan_.layout.comm = comm.kind();
    on_ = comm.rank() == 0 && !options.dir.empty();
    peak_ = options.peak_tflops;
    if (peak_ == 0 && ctx.device) peak_ = ladder::peak_tflops(ctx.device->name());
    if (!on_) return;
    claim(run);
    validated_ = targets.of_validation();
  }

  /// Writes a session start: the run begins at `step`, or has gone back to it.
  void begin(int64_t step) {
    write([&] {
      for (EventFiles* files : {&curves_, &machine_}) {
        if (!files->is_open()) {
          files->open();
          files->write(version_record(time(step)));
        }
        files->write(start_record(time(step), step));
      }
    });
  }

  /// @param more further curves: those of --watch-every
  void step(const StepRecord& r, const std::vector<Scalar>& more, const MachineStep& machine) {
    std::vector<Scalar> curves = {{"loss", r.loss},
                                  {"learning_rate", r.lr},
                                  {"gradient_norm", r.grad_norm},
                                  {"tokens", static_cast<double>((r.step + 1) * r.tokens)}};
    curves.insert(curves.end(), more.begin(), more.end());
    write([&] {
      curves_.write(scalars_record(time(r.step), r.step, curves));
      machine_.write(scalars_record(time(r.step), r.step, of_machine(r, machine)));
    });
  }

  /// Writes a validation loss, and returns it. If a signal has stopped the run, nothing is written.
  double validation(int64_t step, double loss) {
    if (stopping()) return loss;
    std::vector<Scalar> curves = {{"validation_loss", loss}};
    if (const double bits = bits_per_byte(loss, validated_); bits > 0)
      curves.push_back({"validation_bits_per_byte", bits});
    write([&] { curves_.write(scalars_record(time(step), step, curves)); });
    return loss;
  }

 private:
  /// Takes the directory: a new or an empty one, or that of the run that --load goes on with.
  void claim(const RunOptions& run) {
    run.check_outputs({{"--events", options_.dir}});
    std::error_code error;
    std::filesystem::create_directories(options_.dir, error);
    if (error)
      throw UserError("--events {}: cannot be a directory: {}", options_.dir, error.message());
    lock();
    for (EventFiles* files : {&curves_, &machine_}) files->next_number();
    if (run.load.empty() && !names_in(options_.dir).empty())
      throw UserError(
          "--events {}: holds files; legal are an empty directory, and --load, which goes on with "
          "its run",
          options_.dir);
  }
  /// One run at a time writes there. A file system without locks does not tell two apart.
  void lock() {
    const int fd = ::open(options_.dir.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
      throw UserError("--events {}: cannot be read: {}", options_.dir,
                      std::generic_category().message(errno));
    lock_.reset(new int(fd));
    if (::flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
      throw UserError("--events {}: another run is writing there; legal is another directory",
                      options_.dir);
  }
  double time(int64_t step) const {
    if (options_.clock == EventClock::Step) return static_cast<double>(step);
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    return std::chrono::duration<double>(now).count();
  }

  std::vector<Scalar> of_machine(const StepRecord& r, const MachineStep& m) const {
    const double seconds = m.ms / 1e3, T = static_cast<double>(plan_.gpt.seq_len);
    const auto tokens = static_cast<double>(r.tokens),
               ranks = static_cast<double>(plan_.layout.mesh.size());
    const double model = tokens * flops_per_token(plan_.gpt) / seconds / 1e12,
                 computed = ranks * static_cast<double>(m.products) / seconds / 1e12;
    std::vector<Scalar> all = {{"step_ms", m.ms},
                               {"tokens_per_second", tokens / seconds},
                               {"samples_per_second", tokens / T / seconds},
                               {"tflops/model", model},
                               {"tflops/computed", computed},
                               {"loss_scale", m.loss_scale}};
    if (peak_ > 0) {
      const double peak = peak_ * static_cast<double>(devices(plan_));
      all.push_back({"utilization/mfu", model / peak});
      all.push_back({"utilization/hfu", computed / peak});
    }
    for (size_t i = 0; i < kMemCount; ++i)
      all.push_back(
          {fmt::format("memory/{}", kMemNames[i]), static_cast<double>(arena_.peak().bytes[i])});
    return all;
  }

  /// If the disk takes no more, the run goes on without events.
  template <class Write>
  void write(Write&& what) {
    if (!on_) return;
    try {
      what();
    } catch (const UserError& e) {
      log_.give_up("--events", e);
      on_ = false;
    }
  }

  EventOptions options_;
  RunPlan plan_;
  const Arena& arena_;
  Log& log_;
  EventFiles curves_, machine_;
  Descriptor lock_;        ///< held as long as this lives
  TargetCount validated_;  ///< what a validation loss is a mean over
  bool on_ = false;
  double peak_ = 0;  ///< TFLOP/s of one device; 0: not known
};

}  // namespace ladder
