// CommStream: the communication stream of a rank.
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

/// Jobs that communicate, in a group of their own. With a thread they run while the rank computes;
/// without one, the rank itself does each job when it is given. All ranks run the same jobs in the
/// same order.
class CommStream {
 public:
  /// A job communicates. It may call kernels with the Ctx that it gets.
  using Job = std::function<void(const Ctx&, Collectives&)>;

  /// @param arena    gives bytes() as Mem::Comm
  /// @param ctx      that of the rank's own thread; must live longer
  /// @param elements how many the largest tensor to reduce has, F32
  /// @param beside   whether jobs run in a thread of their own; if not, they run when they are
  /// given
  CommStream(Arena& arena, const Ctx& ctx, Comm& comm, const RunOptions& run, Reduction reduction,
             int64_t elements, bool beside);

  /// Bytes of Comm: what arrives, in pieces.
  static int64_t bytes(int ranks, int64_t elements) {
    return 4 * Collectives::workspace_elements(ranks, elements);
  }

  /// Starts a job. It sees what kernels that were called before have written. The job owns the
  /// tensors that it reads or writes until wait() returns. Then the job is done, on a device, too.
  Pending run(Job job);

  bool has_thread() const { return queue_.has_value(); }
  int size() const { return group_->size(); }
  /// The group that counts what is sent here.
  const Comm& group() const { return *group_; }

  /// Gives the thread a row in the timeline, and counts in the report what it sends.
  void show(Log& log);

 private:
  const Ctx& ctx_;
  std::unique_ptr<Comm> group_;
  std::unique_ptr<Device> device_;  ///< of the other thread
  Ctx beside_;
  std::vector<Event> events_;  ///< of the other thread
  std::optional<Collectives> collectives_;
  std::optional<CommQueue> queue_;  ///< last, because its thread uses all of the above
};

}  // namespace ladder
