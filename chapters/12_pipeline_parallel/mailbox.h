// Messages between neighboring stages, and the buffers where they wait.
#pragma once

#include <array>
#include <cstddef>
#include <memory>

#include "chapters/12_pipeline_parallel/pipeline.h"
#include "common/comm/comm.h"
#include "kernels/arena.h"
#include "kernels/kernels.h"

namespace ladder {

/// Messages of one kind between neighboring stages. `step` is +1 if they go to the next stage, -1
/// if they go to the one before. The last stage and the first are neighbors, too.
class Mailbox {
 public:
  /// @param stages the ranks of the pipeline, by stage
  /// @param like   a message has this dtype and shape, or fewer sequences
  Mailbox(Arena& arena, const Ctx& ctx, Comm& stages, int step, const Tensor& like)
      : ctx_(ctx), group_(stages.split(0, stages.rank())), step_(step) {
    if (stages.size() == 1) return;
    for (Tensor& buffer : buffers_)
      buffer = arena.alloc(Mem::Comm, "mailbox", like.dtype, like.shape);
  }

  /// Returns when x may change: x then waits in a buffer until the other stage receives it.
  void send(Tensor x) {
    const size_t i = next_++ % kMailbox;
    pending_[i].wait();
    const Tensor out = buffers_[i].first(x.dim(0));
    ctx_.kernels->cast(ctx_, out, x);  // a copy
    pending_[i] = group_->isend(out, neighbor(step_));
  }
  void recv(Tensor x) { group_->recv(x, neighbor(-step_)); }
  /// Returns when everything has been received.
  void finish() {
    for (Pending& pending : pending_) pending.wait();
  }

  const Comm& group() const { return *group_; }

 private:
  int neighbor(int step) const { return (group_->rank() + step + group_->size()) % group_->size(); }

  const Ctx& ctx_;
  /// The same ranks again, so that messages of two mailboxes cannot be mixed up, and each counts
  /// its own.
  std::unique_ptr<Comm> group_;
  int step_;
  std::array<Tensor, kMailbox> buffers_;
  std::array<Pending, kMailbox> pending_;
  size_t next_ = 0;
};

}  // namespace ladder
