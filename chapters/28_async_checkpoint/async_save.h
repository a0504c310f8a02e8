// --async: training waits only for a copy. At the end of a step each rank copies its part of the
// checkpoint, and a thread writes the copy to the disk during the next steps.
//
// The thread never communicates. After the copy, and at the end of each later step, ranks vote.
// When all have written, ranks send their checksums to rank 0, and a thread of rank 0 commits: it
// makes the files the checkpoint.
#pragma once

#include <chrono>
#include <cstring>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/error.h"
#include "common/run/command_line.h"
#include "common/run/log.h"
#include "common/run/options.h"
#include "common/save/checkpoint.h"
#include "common/save/file_order.h"
#include "kernels/arena.h"
#include "kernels/transfer.h"

namespace ladder {

/// --async
struct AsyncOptions {
  bool async = false;

  void add_to(CommandLine& line) {
    line.group("28_async_checkpoint");
    line.add("--async", async, "write checkpoints while training goes on, from a copy in memory");
  }
  /// @throws UserError unless the run can save so
  void check(const RunOptions& run) const {
    if (async && run.save.empty()) throw UserError("--async needs --save");
  }
};

/// The copy of all tensors that this rank adds to a checkpoint.
class Staging {
 public:
  /// Takes no memory without --async. With a GPU the copy lies in memory that the host reads, too.
  Staging(Arena& arena, const AsyncOptions& o, const Flat& params,
          const std::vector<NamedTensor>& optim) {
    if (!o.async) return;
    const auto like = [&](const std::string& name, const Tensor& tensor) {
      return arena.shared(Mem::Staging, "staged." + name, tensor.dtype, tensor.shape);
    };
    params_ = like("params", params.tensor);
    for (const auto& [name, tensor] : optim) optim_.push_back({name, like(name, tensor)});
  }
  static int64_t bytes(const AsyncOptions& o, int64_t params, int64_t optim) {
    return o.async ? params + optim : 0;
  }

  explicit operator bool() const { return params_.ptr != nullptr; }

  /// Copies all tensors, the weights in the order of the files. All ranks call it, because some
  /// bytes of the files are another rank's to write. @return the state with the copies in place of
  /// the tensors
  TrainingState copy(const Ctx& ctx, const TrainingState& state) const {
    FileOrder(state).stage(ctx, params_);
    for (size_t i = 0; i < optim_.size(); ++i) {
      const Tensor from = state.optim[i].tensor, to = optim_[i].tensor;
      const HostCopy host = HostCopy::of(ctx, from);
      std::memcpy(to.host(), host.tensor().ptr, static_cast<size_t>(from.bytes()));
    }
    // Without `others`, small states such as the loss scale: begin_save() has already read them.
    return {.gpt = state.gpt,
            .layout = state.layout,
            .params = state.params.copied_to(params_),
            .optim = optim_,
            .comm = state.comm,
            .is_staged = true};
  }

 private:
  Tensor params_;
  std::vector<NamedTensor> optim_;
};

/// Saves while training goes on, one checkpoint at a time. Without --async it saves as chapter 10
/// does.
class AsyncSave {
 public:
  AsyncSave(RunLog& log, const Staging& staging) : log_(log), staging_(staging) {
    log.record_beside(beside_, spans_);
  }

  /// Copies the state after `steps` steps, and lets a thread write the copy. If the previous save
  /// is not done, it first waits for that one, and says how long.
  void save(const Ctx& ctx, const TrainingState& state, int64_t steps) {
    if (!staging_) return log_.save(state, steps);
    int64_t wait_begin = now_ns();
    if (save_) {
      finish_now();
      const int64_t now = now_ns();
      log_.note(fmt::format("step {}: waited {:.2f} s for the save of step {}", steps - 1,
                            static_cast<double>(now - wait_begin) * 1e-9, steps_ - 1));
      wait_begin = now;
    }
    steps_ = steps;
    save_ = log_.begin_save(state, steps);
    const int64_t copy_begin = now_ns();
    const TrainingState staged = staging_.copy(ctx, state);
    copy_ns_ = now_ns() - copy_begin;
    wait_ns_ = copy_begin + copy_ns_ - wait_begin;
    is_written_ = false;
    start([this, staged] { save_->write(Ctx{}, staged); });
  }

  /// At the end of every step: ranks vote whether their threads are done, first with writing, then
  /// with the commit. After a vote of kFailed, agree() or close_save() throws NotWritten on rank 0,
  /// and that ends all ranks. After the last step there is no vote: it waits for the threads.
  void end_step(int64_t step) {
    if (!save_) return;
    if (log_.is_last(step)) return finish_now();
    enum : uint8_t { kDone, kBusy, kFailed };
    uint8_t own = kBusy;
    if (thread_.wait_for(std::chrono::seconds(0)) == std::future_status::ready)
      own = save_->error().empty() ? kDone : kFailed;
    if (log_.most(own) == kBusy) return;
    is_written_ ? close_save() : agree();
  }

 private:
  /// Lets a thread do the next part of the save.
  template <class Part>
  void start(Part part) {
    thread_ = std::async(std::launch::async, [this, part] {
      const int64_t begin = now_ns();
      part();
      span_ = {is_written_ ? "publish" : "write", begin, now_ns()};
    });
  }
  /// Waits for the thread, and counts the time.
  void join() {
    const int64_t begin = now_ns();
    thread_.get();
    wait_ns_ += now_ns() - begin;
    spans_.push_back(span_);
  }
  /// All have written, or one has failed. Rank 0 learns checksums, errors, and whether a rank has
  /// found a NaN. A thread of rank 0 then commits; those of other ranks have nothing to do.
  void agree() {
    join();
    const int64_t begin = now_ns();
    log_.agree_on(*save_);
    wait_ns_ += now_ns() - begin;
    is_written_ = true;
    start([this] { save_->publish(); });
  }
  /// The commit is done, or has failed: logs the save, or throws.
  void close_save() {
    join();
    log_.end_save(*save_, steps_, wait_ns_, copy_ns_);
    save_.reset();
  }
  /// Does what is left of the save without votes, and waits for it.
  void finish_now() {
    if (!is_written_) agree();
    close_save();
  }

  RunLog& log_;
  const Staging& staging_;
  Ctx beside_;  ///< gives the thread a row in the timeline
  std::vector<Event> spans_;
  Event span_{};
  std::unique_ptr<CheckpointSave> save_;  ///< under way; null: none
  bool is_written_ = false;               ///< all ranks have written; what is left is the commit
  int64_t steps_ = 0, wait_ns_ = 0, copy_ns_ = 0;
  std::future<void> thread_;  ///< last member: it is waited for before the others are gone
};

}  // namespace ladder
