// Batch-size ramp: begins with small batches, while the direction of the gradient is clear and
// noise does little harm (arXiv 1711.00489, 2005.14165). Later steps take the full --batch.
//
//   --batch-ramp 4:100,8:300    4 sequences until step 100, 8 until step 300, then --batch
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "chapters/03_schedules/schedule.h"
#include "chapters/04_clipping/accumulate.h"
#include "chapters/07_ddp/ddp.h"
#include "common/error.h"
#include "common/number_in.h"
#include "common/run/command_line.h"

namespace ladder {

struct BatchRampOptions {
  std::vector<std::string> stages;

  void add_to(CommandLine& line) {
    line.group("15_batch_size");
    line.add("--batch-ramp", stages, "BATCH:UNTIL_STEP,... before the full --batch",
             {.list = true});
  }
};

class BatchRamp {
 public:
  /// @param batch the full batch, after the last stage
  /// @throws UserError if a stage is not BATCH:UNTIL_STEP, if steps do not ascend, or if the batch
  /// of a stage is not in 1..batch
  BatchRamp(const BatchRampOptions& options, int64_t batch) : full_(batch) {
    int64_t last = 0;
    for (const std::string& text : options.stages) {
      const Stage stage = read(text);
      if (stage.batch < 1 || stage.batch > batch)
        throw UserError("--batch-ramp {}: the batch must be 1 to --batch {}", text, batch);
      if (stage.until <= last)
        throw UserError("--batch-ramp {}: the step must be above {}", text, last);
      last = stage.until;
      stages_.push_back(stage);
    }
  }

  /// How many sequences a step has. Steps count from 0.
  int64_t batch(int64_t step) const {
    for (const Stage& stage : stages_)
      if (step < stage.until) return stage.batch;
    return full_;
  }

  /// How many sequences steps 0 .. step - 1 have together.
  int64_t sequences_before(int64_t step) const {
    int64_t sum = 0, begin = 0;
    for (const Stage& stage : stages_) {
      const int64_t end = std::min(step, stage.until);
      sum += std::max<int64_t>(0, end - begin) * stage.batch;
      begin = stage.until;
    }
    return sum + std::max<int64_t>(0, step - begin) * full_;
  }

  /// How many tokens steps 0 .. step - 1 have together, in the form that the schedule needs.
  Schedule::TokensBefore tokens_before(int64_t seq_len) const {
    return [ramp = *this, seq_len](int64_t step) {
      return static_cast<double>(ramp.sequences_before(step)) * static_cast<double>(seq_len);
    };
  }

  /// The batch of each stage; the full batch comes last. A layout must suit all of them.
  std::vector<int64_t> batches() const {
    std::vector<int64_t> all;
    for (const Stage& stage : stages_) all.push_back(stage.batch);
    all.push_back(full_);
    return all;
  }

 private:
  struct Stage {
    int64_t batch;
    int64_t until;
  };

  static Stage read(const std::string& text) {
    const auto [before, behind] = around_colon(text);
    const auto batch = number_in<int64_t>(before), until = number_in<int64_t>(behind);
    if (!batch || !until)
      throw UserError("--batch-ramp {}: it takes BATCH:UNTIL_STEP, as in 4:100,8:300", text);
    return {*batch, *until};
  }

  int64_t full_;
  std::vector<Stage> stages_;
};

/// The most micro-batches that a step has on one of `ranks` ranks.
/// @throws UserError if the batch of a stage does not suit ranks or micro-batches
inline int64_t most_micro_steps(const BatchRamp& ramp, const DdpOptions& ddp, int64_t ranks,
                                const AccumulateOptions& accumulate) {
  int64_t most = 1;
  for (const int64_t batch : ramp.batches()) {
    const int64_t share = ddp.share(batch, ranks);
    most = std::max(most, share / accumulate.micro(share));
  }
  return most;
}

}  // namespace ladder
