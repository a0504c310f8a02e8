// CommStream: what a rank communicates beside its computation.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "common/comm/comm_queue.h"
#include "common/comm/reduction.h"
#include "common/run/log.h"
#include "common/run/options.h"

namespace ladder {

/// Reductions in a group of their own; if wanted, in a thread of their own, while the rank goes on
/// to compute. All ranks run the same jobs in the same order.
class CommStream {
 public:
  /// Communicates, and may call kernels with the Ctx that it gets.
  using Job = std::function<void(const Ctx&, Reducer&)>;

  /// @param ctx      of the rank's own thread; must live longer
  /// @param elements of the largest tensor to reduce, F32
  /// @param beside   a thread of its own; else jobs run when they are given
  CommStream(Arena& arena, const Ctx& ctx, Comm& comm, const RunOptions& run, Reduction reduction,
             int64_t elements, bool beside);

  /// Bytes of Comm: what arrives, in pieces.
  static int64_t bytes(int ranks, int64_t elements) {
    return 4 * Reducer::workspace_elements(ranks, elements);
  }

  /// Gives a job. Kernels called so far have written what it reads. What it reads or writes is its
  /// own until wait() returns; it is done then, on a device, too.
  Pending run(Job job);

  bool is_beside() const { return queue_.has_value(); }
  int size() const { return group_->size(); }
  /// What it sends is counted here.
  const Comm& group() const { return *group_; }

  /// Before the first job of a step: sent() counts from here on.
  void begin_step() {
    before_ = wire_bytes();
    skipped_ = false;
  }
  /// The step ends without the jobs that follow an update.
  void skip_update() { skipped_ = true; }
  bool skipped_update() const { return skipped_; }
  /// Bytes that this rank has sent since the last step began, 0 if none has. Between jobs.
  int64_t sent() const { return before_ ? wire_bytes() - *before_ : 0; }

  /// Makes the thread beside a row of the timeline, and counts what it sends in the report.
  void show(RunLog& log);

 private:
  int64_t wire_bytes() const { return group_->statistics().wire_bytes(); }

  const Ctx& ctx_;
  std::unique_ptr<Comm> group_;
  std::unique_ptr<Device> device_;  ///< of the thread beside
  Ctx beside_;
  std::vector<Event> events_;      ///< of the thread beside
  std::optional<int64_t> before_;  ///< bytes sent when the last step began
  bool skipped_ = false;
  std::optional<Reducer> reducer_;
  std::optional<CommQueue> queue_;  ///< last: its thread uses all of the above
};

}  // namespace ladder
