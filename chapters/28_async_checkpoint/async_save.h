// --async: training waits only for a copy. At the end of a step each rank copies its part of the
// checkpoint, and a thread writes the copy to the disk during the next steps.
//
// The thread never communicates. After the copy, and at the end of each later step, ranks vote.
// When all have written, ranks send their checksums to rank 0, and a thread of rank 0 commits: it
// makes the files the checkpoint.
#pragma once

#include <array>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <unistd.h>
#include <vector>

#include <nlohmann/json.hpp>

#include "chapters/28_async_checkpoint/own_bytes.h"
#include "common/comm/failure.h"
#include "common/error.h"
#include "common/json.h"
#include "common/run/command_line.h"
#include "common/run/options.h"
#include "common/run/run.h"
#include "common/save/checkpoint.h"
#include "common/save/hf_weights.h"
#include "kernels/arena.h"
#include "kernels/transfer.h"

namespace ladder {

/// --async
struct AsyncOptions {
  bool async = false;

  void add_to(CommandLine& line) {
    line.group("28_async_checkpoint");
    line.add("--async", async, "write checkpoints while training goes on, from a copy in memory",
             {.needs = {"--save"}});
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

  /// Copies all tensors. @return the state with the copies in place of the tensors
  TrainingState copy(const Ctx& ctx, const TrainingState& state) const {
    copy_to(params_, ctx, state.params.tensor);
    for (size_t i = 0; i < optim_.size(); ++i)
      copy_to(optim_[i].tensor, ctx, state.optim[i].tensor);
    // Without `others`: begin_save() has already read them into SmallStates.
    return {.layout = state.layout,
            .params = state.params.copied_to(params_),
            .optim = optim_,
            .comm = state.comm};
  }

 private:
  static void copy_to(Tensor to, const Ctx& ctx, Tensor from) {
    const HostCopy host = HostCopy::of(ctx, from);
    std::memcpy(to.host(), host.tensor().ptr, static_cast<size_t>(from.bytes()));
  }

  Tensor params_;
  std::vector<NamedTensor> optim_;
};

/// The name of a generation that rank 0 has created, on all ranks.
inline std::string name_on_all(const std::optional<Generation>& generation, Comm* comm) {
  std::array<char, 64> name{};
  if (generation) generation->path().filename().string().copy(name.data(), name.size() - 1);
  if (comm) comm->broadcast({.ptr = name.data(), .dtype = Dtype::U8, .shape = {64}}, 0);
  return name.data();
}

/// A save under way: what a rank writes and knows of it.
struct PendingSave {
  PendingSave(const TrainingState& state, int64_t steps_)
      : steps(steps_), plans{plan_weights(state.layout), plan_optimizer(state)} {}

  /// Writes this rank's bytes to the disk. @throws nothing: what the disk refuses is kept in
  /// `error`
  void write(const TrainingState& state) try {
    const int64_t begin = now_ns();
    std::vector<SharedFile> files;
    files.emplace_back(path / kWeightsFile, plans[0]);
    files.emplace_back(path / kOptimizerFile, plans[1]);
    const int rank = state.comm ? state.comm->rank() : 0;
    for (SharedFile& file : files) {
      std::string head = file.plan().head;
      if (rank == 0)
        file.add(0, {.ptr = head.data(), .dtype = Dtype::U8, .shape = {std::ssize(head)}});
    }
    // Always so, unless ranks are replicas (chapter 30): those write nothing.
    if (rank < ranks_of(state.layout)) {
      add_weights(files[0], state);
      add_states(files[1], state);
    }
    const int64_t written = now_ns();
    for (size_t i = 0; i < files.size(); ++i) {
      files[i].finish();
      sums[i] = files[i].sum();
      if (not_finite.empty()) not_finite = files[i].not_finite();
      writes += files[i].writes();
      bytes += files[i].bytes();
    }
    write_ns = written - begin;
    sync_ns = now_ns() - written;
  } catch (const UserError& e) {
    error = e.what();
  }

  /// All ranks of `comm` call it after write(). Rank 0 puts checksums together, and learns of
  /// errors and of numbers that are not finite. @param comm null: there is only this rank
  void agree(Comm* comm) {
    nlohmann::json own = {{"error", error}, {"not_finite", not_finite}};
    for (const RangeSum& sum : sums) own["sums"].push_back({sum.crc, sum.cover});
    std::vector<std::string> reports{json_text(own)};  // a path in the error may not be UTF-8
    if (comm) reports = gather_text(*comm, reports[0]);
    if (!generation) return;  // only rank 0 has one
    sums = {};
    not_finite = small->not_finite();
    for (size_t rank = 0; rank < reports.size(); ++rank) {
      const nlohmann::json one = nlohmann::json::parse(reports[rank]);
      if (error.empty() && one["error"] != "") failed_rank = static_cast<int>(rank);
      if (error.empty()) error = one["error"];
      if (not_finite.empty()) not_finite = one["not_finite"];
      for (size_t i = 0; i < sums.size(); ++i) sums[i] += {one["sums"][i][0], one["sums"][i][1]};
    }
    for (size_t i = 0; i < sums.size(); ++i)
      if (error.empty() && sums[i].cover != cover_of(0, plans[i].bytes))
        error = path.string() + ": ranks have not written each byte once";
    if (!not_finite.empty()) why_not = not_finite + " holds a NaN or an infinity";
  }

  /// On rank 0: commits, unless there is a number that is not finite. Like write() it throws
  /// nothing.
  void commit() try {
    if (!generation || !error.empty() || !why_not.empty()) return;
    small->commit(*generation, sum_of_runs(sums[0].crc, plans[0].bytes),
                  sum_of_runs(sums[1].crc, plans[1].bytes));
  } catch (const UserError& e) {
    error = e.what();
  }

  int64_t steps;
  std::array<SafetensorsPlan, 2> plans;  ///< of the weights and of the optimizer's state
  std::filesystem::path path;            ///< of the generation
  std::array<RangeSum, 2> sums;          ///< of each file
  std::string error;                     ///< why a write failed, on this rank or on any
  int failed_rank = 0;                   ///< the first rank with an error
  std::string not_finite;                ///< a tensor with a NaN or an infinity
  int64_t writes = 0, bytes = 0, write_ns = 0, sync_ns = 0;
  int64_t wait_ns = 0, copy_ns = 0;  ///< what training has waited, and how much of that was a copy
  // On rank 0:
  std::optional<Generation> generation;
  std::optional<SmallStates> small;
  std::string why_not;  ///< the checkpoint is not committed
};

/// Saves while training goes on, one checkpoint at a time. Without --async it saves as chapter 10
/// does.
class AsyncSave {
 public:
  /// @throws UserError on rank 0 if a rank does not see the directory of --save
  AsyncSave(Run& run, const Staging& staging) : run_(run), staging_(staging) {
    run.log.record_beside(beside_, spans_);
    if (staging_) check_shared();
  }

  /// Copies the state after `steps` steps, and lets a thread write the copy. If the previous save
  /// is not done, it first waits for that one, and says how long.
  void save(const Ctx& ctx, const TrainingState& state, int64_t steps) {
    if (!staging_) return run_.saver.save(state, steps);
    // The last of n steps is step n - 1.
    if (save_) {
      const int64_t begin = now_ns(), before = save_->steps;
      finish_now();
      run_.log.note(fmt::format("step {}: waited {:.2f} s for the save of step {}", steps - 1,
                                static_cast<double>(now_ns() - begin) * 1e-9, before - 1));
    }
    const int64_t begin = now_ns();
    begin_save(state, steps);
    const int64_t copy_begin = now_ns();
    const TrainingState staged = staging_.copy(ctx, state);
    save_->copy_ns = now_ns() - copy_begin;
    save_->wait_ns = now_ns() - begin;
    start([this, staged] { save_->write(staged); });
  }

  /// Waits until the save under way, if there is one, is done on all ranks.
  void wait() {
    if (!save_) return;
    finish_now();
    if (run_.control()) run_.control()->barrier();  // rank 0 has committed it
  }

  /// At the end of every step: ranks vote whether their threads are done, first with writing, then
  /// with the commit. If a rank has failed, agree() or close_save() throws NotWritten on rank 0,
  /// which ends all ranks. After the last step there is no vote: each rank waits for its thread.
  void end_step(int64_t step) {
    if (!save_) return;
    if (run_.is_last(step)) return finish_now();
    enum : uint8_t { kDone, kBusy, kFailed };
    uint8_t own = kBusy;  // most() below takes the largest: one failure outweighs all else
    if (thread_.wait_for(std::chrono::seconds(0)) == std::future_status::ready)
      own = save_->error.empty() ? kDone : kFailed;
    if (run_.most(own) == kBusy) return;
    is_written_ ? close_save() : agree();
  }

 private:
  void check_shared() const {
    // control(): all ranks, in a group beside the run's own, whose bytes are not counted.
    if (!run_.control()) return;
    std::optional<Generation> probe;
    if (SaveDirectory* const home = run_.saver.directory()) probe.emplace(*home, 0);
    const std::filesystem::path own = run_.options().save;
    const std::filesystem::path there = own / name_on_all(probe, run_.control());
    const bool sees = ::access(there.c_str(), W_OK | X_OK) == 0;
    const auto unseen = gather_text(*run_.control(), sees ? "" : run_.options().save);
    for (size_t rank = 0; rank < unseen.size(); ++rank)
      if (!unseen[rank].empty())
        throw UserError(
            "--save {}: rank {} does not see in {} what rank 0 has written there; legal with "
            "--async is a directory that all ranks share",
            run_.options().save, rank, unseen[rank]);
  }
  /// All that must be known before the copy. Rank 0 creates the generation.
  void begin_save(const TrainingState& state, int64_t steps) {
    save_ = std::make_unique<PendingSave>(state, steps);
    is_written_ = false;
    if (SaveDirectory* const home = run_.saver.directory()) {
      try {
        save_->generation.emplace(*home, steps);
      } catch (const UserError& e) {
        throw NotWritten(0, e.what());
      }
      save_->small.emplace(run_.saver.all_of(state), steps);
    }
    save_->path =
        run_.options().save / std::filesystem::path(name_on_all(save_->generation, run_.control()));
  }
  /// Lets a thread do the next part of the save.
  template <class Part>
  void start(Part part) {
    thread_ = std::async(std::launch::async, [this, part] {
      const int64_t begin = now_ns();
      part();
      span_ = {is_written_ ? "publish" : "write", begin, now_ns()};
    });
  }
  /// Waits for the thread.
  void join() {
    thread_.get();
    spans_.push_back(span_);
  }
  /// If the disk of a rank has refused a write, throws on rank 0, which ends all ranks.
  void check() const {
    if (save_->generation && !save_->error.empty())
      throw NotWritten(save_->failed_rank, save_->error);
  }
  /// All have written, or one has failed. A thread of rank 0 then commits; those of other ranks
  /// have nothing to do.
  void agree() {
    const int64_t begin = now_ns();
    join();
    save_->agree(run_.control());
    check();
    is_written_ = true;
    save_->wait_ns += now_ns() - begin;
    start([this] { save_->commit(); });
  }
  /// The commit is done, or has failed: logs the save, or throws.
  void close_save() {
    const int64_t begin = now_ns();
    join();
    check();
    save_->wait_ns += now_ns() - begin;
    const auto ms = [](int64_t ns) { return 1e-6 * static_cast<double>(ns); };
    run_.saver.saved(save_->steps, save_->why_not,
                     {{"wait_ms", ms(save_->wait_ns)},
                      {"copy_ms", ms(save_->copy_ns)},
                      {"write_ms", ms(save_->write_ns)},
                      {"sync_ms", ms(save_->sync_ns)},
                      {"writes", save_->writes},
                      {"bytes", save_->bytes}});
    save_.reset();
  }
  /// Does what is left of the save without votes, and waits for it.
  void finish_now() {
    if (!is_written_) agree();
    close_save();
  }

  Run& run_;
  const Staging& staging_;
  Ctx beside_;  ///< gives the thread a row in the timeline
  std::vector<Event> spans_;
  Event span_{};
  std::unique_ptr<PendingSave> save_;  ///< null: none
  bool is_written_ = false;            ///< all ranks have written; what is left is the commit
  std::future<void> thread_;           ///< last member: it is waited for before the others are gone
};

}  // namespace ladder
