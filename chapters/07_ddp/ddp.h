// Data parallelism: every rank has all weights and a share of the batch, and gradients are summed
// over ranks. Li et al., "PyTorch Distributed", arXiv 2006.15704, describe three ways to do it:
//
//   naive        backward ............ then an all-reduce for each tensor
//   bucketed     backward ............ then one for each bucket of sections: fewer and longer ones
//   overlapped   backward ............ each bucket as soon as backward has left its sections
//                     all-reduces ...  in a thread of its own
//
// The loss is a mean over the global batch. Its gradient is the sum of the ranks' gradients, if
// every rank divides by the global number of targets. So a rank with few targets has little weight,
// and nothing is divided by N.
//
// Rank r takes sequences r B/N ... (r+1) B/N - 1. They are a subtree of the batch if their number
// is a power of two. Reductions that sum ranks as a tree then give the bits of a single rank.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <optional>
#include <vector>

#include "common/comm/reduction.h"
#include "common/error.h"
#include "common/model/layout.h"
#include "common/run/comm_stream.h"
#include "common/run/log.h"
#include "common/run/options.h"

namespace ladder {

enum class DdpMode : uint8_t { Naive, Bucketed, Overlapped };
constexpr auto names_of(DdpMode) { return std::array{"naive", "bucketed", "overlapped"}; }

struct DdpOptions {
  DdpMode mode = DdpMode::Overlapped;
  double bucket_mb = 25;
  Reduction reduction = Reduction::Halving;

  void add_to(CommandLine& line) {
    line.group("07_ddp");
    line.add("--ddp", mode, "when gradients are reduced: naive, bucketed or overlapped");
    line.add("--bucket-mb", bucket_mb, "least size of a bucket, in 2^20 bytes; 0: each section");
    line.add("--reduction", reduction,
             "halving or tree (the bits of one rank), ring, naive, or native (the library's)");
  }

  /// @throws UserError
  void check() const {
    if (!(bucket_mb >= 0 && bucket_mb <= 1e6))
      throw UserError("--bucket-mb must be from 0 to 1000000, not {}", bucket_mb);
  }

  /// Whether gradients travel while the rank computes.
  bool overlaps(int ranks) const { return mode == DdpMode::Overlapped && ranks > 1; }

  /// Whether all ranks send equally many bytes.
  bool sends_equally() const {
    return reduction == Reduction::Halving || reduction == Reduction::Ring;
  }

  /// The local batch: how many sequences of a batch each of `ranks` ranks has.
  /// @throws UserError as check_reduction() does; also if shares would be unequal, or would make an
  /// exact reduction sum in another order
  int64_t share(int64_t batch, int64_t ranks) const {
    check_reduction(reduction, static_cast<int>(ranks));
    const int64_t sequences = batch / ranks;
    const bool exact = is_exact(reduction);
    const bool is_subtree = std::has_single_bit(static_cast<uint64_t>(sequences));
    if (sequences * ranks != batch || (exact && ranks > 1 && !is_subtree))
      throw UserError("a batch of {} does not suit {} ranks; legal are {} times {}", batch, ranks,
                      ranks, exact ? "1, 2, 4, 8, ..." : "any number from 1");
    return sequences;
  }
};

/// The communication stream for --ddp and --reduction.
/// @param elements of the largest message: what arrives of it needs memory until it is added
inline CommStream open_comm_stream(Arena& arena, const Ctx& ctx, Comm& comm, const RunOptions& run,
                                   const DdpOptions& options, int64_t elements) {
  return {arena, ctx, comm, run, options.reduction, elements, options.overlaps(comm.size())};
}

/// The sum over all ranks.
inline int64_t sum_over(Comm& comm, int64_t x) {
  comm.all_reduce({.ptr = &x, .dtype = Dtype::I64, .shape = {1}});
  return x;
}

/// Sums gradients over ranks, one message after the other. A message is one all-reduce.
class Ddp {
 public:
  Ddp(CommStream& comm_stream, const ParamLayout& layout, const DdpOptions& options)
      : comm_stream_(comm_stream), layout_(layout.grads()), messages_(messages(layout_, options)) {}

  /// How many elements the largest message has.
  static int64_t largest_message(const ParamLayout& layout, const DdpOptions& options) {
    int64_t most = 0;
    for (const Range& message : messages(layout.grads(), options))
      most = std::max(most, message.size());
    return most;
  }

  /// Call it when the gradients of section s are complete. If the communication stream has a
  /// thread, this starts the messages that are then complete. grads F32 (layout.grads().size())
  void section_done(Tensor grads, int64_t s) {
    if (comm_stream_.has_thread()) start(grads, layout_.section(s).begin);
  }

  /// Returns when all of `grads` is the sum over ranks.
  void wait(const Ctx& ctx, Tensor grads) {
    const Span span(ctx, "wait_for_gradients");
    start(grads, 0);
    for (Pending& pending : pending_) pending.wait();
    pending_.clear();
    next_ = 0;
  }

 private:
  /// The elements of each message. The end of the buffer comes first, because backward starts at
  /// the head.
  static std::vector<Range> messages(const ParamLayout& layout, const DdpOptions& options) {
    std::vector<Range> all;
    if (options.mode == DdpMode::Naive) {
      // A message is a tensor and the gap behind it, together a multiple of kAlign elements.
      int64_t end = layout.size();
      for (auto spec = layout.specs().rbegin(); spec != layout.specs().rend(); ++spec) {
        all.push_back({spec->offset, end});
        end = spec->offset;
      }
      return all;
    }
    // With --bucket-mb 8, section 5 of 3 MiB, 4 of 9 and 3 of 2 make the buckets {5, 4} and {3}. A
    // bucket takes sections until it has reached the limit, so it may be far above, and cuts none.
    const double least = options.bucket_mb * (1 << 20) / 4;
    for (int64_t s = layout.sections(); s-- > 0;) {
      const bool open = !all.empty() && static_cast<double>(all.back().size()) < least;
      if (!open) all.push_back({0, layout.section(s).end});
      all.back().begin = layout.section(s).begin;
    }
    return all;
  }

  /// Starts all messages that are not started yet and whose elements lie from `begin` on. Backward
  /// goes down the buffer, so from the beginning of the section that it has just left on, all
  /// gradients are complete.
  void start(Tensor grads, int64_t begin) {
    if (comm_stream_.size() == 1) return;
    for (; next_ < messages_.size() && messages_[next_].begin >= begin; ++next_) {
      const Tensor part = grads.slice(messages_[next_].begin, messages_[next_].size());
      pending_.push_back(comm_stream_.run([part](const Ctx& ctx, Collectives& collectives) {
        const Span span(ctx, "all_reduce");
        collectives.all_reduce(part);
      }));
    }
  }

  CommStream& comm_stream_;
  ParamLayout layout_;
  std::vector<Range> messages_;
  size_t next_ = 0;
  std::vector<Pending> pending_;
};

/// Bytes that one rank sends for gradients in a step: an all-reduce of 4 bytes per element. The
/// formula holds for reductions in which all ranks send equally many bytes, in equal chunks. For
/// others nothing is predicted.
inline std::optional<int64_t> ddp_traffic(const ParamLayout& layout, const DdpOptions& options,
                                          int ranks) {
  // Messages are multiples of kAlign elements. The question is whether their chunks are equal.
  if (!options.sends_equally() || kAlign % ranks != 0) return std::nullopt;
  return 2 * (ranks - 1) * 4 * layout.grads().size() / ranks;
}

/// Reports the bytes that this rank has sent for gradients or parameters in the last step: 0 if no
/// step was taken. If that step skipped its update, nothing is predicted: in chapters 08 and 09 a
/// skipped step sends no weights.
inline void report_traffic(Log& log, std::optional<int64_t> predicted,
                           const CommStream& comm_stream) {
  if (log.last_step_skipped()) predicted.reset();
  log.traffic(predicted, log.sent_in_step(comm_stream.group()));
}

}  // namespace ladder
