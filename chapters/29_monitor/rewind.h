// --rewind N: after a spike, a divergence or a number that is not finite, the run goes back to the
// last checkpoint, and skips the batch of the alarm with N before and after it. PaLM's authors did
// so by hand (arXiv 2204.02311, section 5.1).
//
// From there on a step and its batch have two numbers: batch = step + skipped. Schedule and
// optimizer count steps. A checkpoint holds `skipped` and all ranges.
//
//   step    20   21   22   23   24                      the checkpoint goes on with step 21
//   batch   20   21   22   23   24: a spike             --rewind 1: go back, and skip 23:26
//   step         21   22   23   24   25
//   batch        21   22   26   27   28                 as with --load DIR --skip-batches 23:26
//
// A range A:B has batch A, but not B.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "chapters/14_stability/spike_guard.h"
#include "common/data/text.h"
#include "common/error.h"
#include "common/number_in.h"
#include "common/run/command_line.h"
#include "common/run/options.h"
#include "common/run/run.h"
#include "common/run/tokenizer.h"
#include "common/save/manifest.h"
#include "kernels/tree.h"

namespace ladder {

struct RewindOptions {
  std::optional<int64_t> around = std::nullopt;
  std::vector<std::string> skip = {};

  void add_to(CommandLine& line) {
    line.group("29_monitor");
    line.add("--rewind", around,
             "after a spike, a divergence or a number that is not finite: go back to the "
             "checkpoint in --save, and skip the batch of the alarm with so many before and after",
             {.shown_default = "off"});
    line.add("--skip-batches", skip, "ranges A:B of batches, A but not B, that no step takes",
             {.list = true});
  }
  /// @throws UserError
  void check() const {
    if (around) require_range("--rewind", *around, 0, kMaxCount);
    for (const std::string& text : skip) range(text);
  }
  /// @throws UserError
  void check(const RunOptions& run, const SpikeGuardOptions& guard) const {
    if (!around) return;
    if (!run.plan_only && (run.save.empty() || run.save_every == 0))
      throw UserError("--rewind goes back to a checkpoint; legal with --save and --save-every");
    if (guard.deviations > 0)
      throw UserError("--rewind and --spike-guard: two answers to one spike; legal is one of them");
  }

  static Range range(const std::string& text) {
    const auto [before, behind] = around_colon(text);
    const Range range{number_in<int64_t>(before).value_or(-1),
                      number_in<int64_t>(behind).value_or(-1)};
    if (0 <= range.begin && range.begin < range.end && range.end <= kMaxCount) return range;
    throw UserError("--skip-batches {}; legal is A:B with A from 0 on and B above A", text);
  }
};

/// Which batch a step takes: its own number, moved past the ranges that are skipped.
class BatchNumbers {
 public:
  explicit BatchNumbers(const RewindOptions& options) {
    for (const std::string& text : options.skip) skip(RewindOptions::range(text));
  }

  /// Returns the batch of `step`. Call it with ascending steps; the same step twice is legal. After
  /// set_state(), begin with the checkpoint's step.
  int64_t advance_to(int64_t step) {
    for (const Range& range : ranges_)  // ascending
      if (range.begin <= step + skipped_ && step + skipped_ < range.end)
        skipped_ = range.end - step;
    return step + skipped_;
  }
  /// The targets that losses are means over, for bits per byte. A step has `batch` sequences.
  LossTargets targets(const Text& text, uint64_t seed, int64_t batch) {
    return {.of_step = [=, this, &text](
                           int64_t step,
                           int64_t) { return text.step_targets(seed, advance_to(step), batch); },
            .of_validation = [&text] { return text.validation_targets(); }};
  }
  /// The same from `counts` of batches, as chapter 27 has them.
  LossTargets renumbered(LossTargets counts) {
    counts.of_step = [this, count = counts.of_step](int64_t step, int64_t batch) {
      return count(advance_to(step), batch);
    };
    return counts;
  }
  /// How many batches were skipped before the next step.
  int64_t skipped() const { return skipped_; }
  void skip(Range range) {
    ranges_.push_back(range);
    std::ranges::sort(ranges_, {}, &Range::begin);
  }

  nlohmann::json state() const {
    std::vector<std::array<int64_t, 2>> ranges;
    for (const Range& range : ranges_) ranges.push_back({range.begin, range.end});
    return {{"skipped", skipped_}, {"ranges", ranges}};
  }
  /// Adds the ranges of a checkpoint to those of the command line.
  void set_state(const nlohmann::json& state) {
    skipped_ = count_in(state.at("skipped"));
    for (const nlohmann::json& range : state.at("ranges")) {
      const Range there{count_in(range.at(0)), count_in(range.at(1))};
      if (std::ranges::find(ranges_, there) == ranges_.end()) skip(there);
    }
  }

 private:
  int64_t skipped_ = 0;
  std::vector<Range> ranges_;
};

/// Which batches are skipped after an alarm, and how often a run may go back.
class Rewinds {
 public:
  explicit Rewinds(const RewindOptions& options) : around_(options.around) {}

  bool on() const { return around_.has_value(); }
  /// The batches that are skipped after an alarm at `batch`.
  /// @param first the first batch after the checkpoint; those before it have been taken
  Range around(int64_t batch, int64_t first) const {
    return {std::max(first, batch - *around_), batch + *around_ + 1};
  }
  /// Counts that the run goes back to step `to`. @return false if it has gone there kMost times
  bool count(int64_t to) {
    times_ = to == last_ ? times_ + 1 : 1;
    last_ = to;
    return times_ <= kMost;
  }
  /// The run ends after step `step`, and says why. Returns the step that it does not take.
  int64_t give_up(Run& run, int64_t step, const std::string& why) const {
    run.log.not_done(
        "--rewind",
        fmt::format("{}; {} times back to step {} did not help; legal is another --lr, or "
                    "--load of an earlier checkpoint",
                    why, kMost, last_));
    run.end_after(step);
    return step + 1;
  }

 private:
  static constexpr int kMost = 3;

  std::optional<int64_t> around_;
  int64_t last_ = -1;
  int times_ = 0;
};

/// Prints that step `step` was the last before the run went back to step `to`, and puts it into
/// --report.
inline void report_rewind(Log& log, int64_t step, const std::string& why, int64_t to,
                          Range skipped) {
  const std::string skip = fmt::format("{}:{}", skipped.begin, skipped.end);
  log.note(fmt::format("step {}: back to step {}, --skip-batches {}", step, to, skip));
  log.extra()["rewinds"].push_back(
      {{"step", step}, {"why", why}, {"to", to}, {"skip_batches", skip}});
}

}  // namespace ladder
