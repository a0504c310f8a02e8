// --events DIR: the curves of a run, as event files for TensorBoard: losses, learning rate, norms,
// tokens, tensors. No layout changes them. With --event-clock step, the time of an event is its
// step, and the bytes of the files are the same on every layout.
//
// A resumed run writes a further file, whose name sorts after the last one. A session start in it
// tells readers to drop what they have read of later steps. Going back writes one, too.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

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

  void add_to(CommandLine& line) {
    line.group("29_monitor");
    line.add("--events", dir, "directory for TensorBoard's event files");
    line.add("--event-clock", clock, "the time of an event: wall, or step (equal on every layout)",
             {.needs = {"--events"}});
  }
};

/// Rank 0 writes the files, and other ranks write nothing.
class Events {
 public:
  /// @throws UserError if the directory holds files and nothing is loaded
  Events(const EventOptions& options, const RunOptions& run, const LossTargets& targets, Log& log,
         const Comm& comm)
      : options_(options), log_(log), files_(options.dir) {
    on_ = comm.rank() == 0 && !options.dir.empty();
    if (!on_) return;
    claim(run);
    validated_ = targets.of_validation();
  }

  /// Writes a session start: the run begins at `step`, or has gone back to it.
  void begin(int64_t step) {
    write([&] {
      if (!files_.is_open()) {
        files_.open();
        files_.write(version_record(time(step)));
      }
      files_.write(start_record(time(step), step));
    });
  }

  /// @param more further curves: those of --watch-every
  void step(const StepRecord& r, const std::vector<Scalar>& more) {
    std::vector<Scalar> curves = {{"loss", r.loss},
                                  {"learning_rate", r.lr},
                                  {"gradient_norm", r.grad_norm},
                                  {"tokens", static_cast<double>((r.step + 1) * r.tokens)}};
    curves.insert(curves.end(), more.begin(), more.end());
    write([&] { files_.write(scalars_record(time(r.step), r.step, curves)); });
  }

  /// Writes a validation loss, and returns it. If a signal has stopped the run, nothing is written.
  double validation(int64_t step, double loss) {
    if (stopping()) return loss;
    std::vector<Scalar> curves = {{"validation_loss", loss}};
    if (const double bits = bits_per_byte(loss, validated_); bits > 0)
      curves.push_back({"validation_bits_per_byte", bits});
    write([&] { files_.write(scalars_record(time(step), step, curves)); });
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
    files_.next_number();
    if (run.load.empty() && !names_in(options_.dir).empty())
      throw UserError(
          "--events {}: holds files; legal are an empty directory, and --load, which goes on with "
          "its run",
          options_.dir);
  }

  double time(int64_t step) const {
    if (options_.clock == EventClock::Step) return static_cast<double>(step);
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    return std::chrono::duration<double>(now).count();
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
  Log& log_;
  EventFiles files_;
  TargetCount validated_;  ///< what a validation loss is a mean over
  bool on_ = false;
};

}  // namespace ladder
