// ZeRO stage 2: every rank has the gradients of its chunks, and no others (arXiv 1910.02054).
//
// The gradient of a whole section exists only for a short time: from the backward pass of its block
// until its chunks have gone to their ranks:
//
//   block l      backward -> buffer A -> reduce-scatter -> this rank's chunk, added to its sum
//   block l - 1            backward -> buffer B -> ...
//
// With one buffer, the next block waits for the reduce-scatter of this one. With two buffers they
// overlap. Full gradients never exist, so there is no buffer to accumulate them in. Every
// micro-step has its own reduce-scatter, and GA micro-steps send GA times the bytes. That is the
// price of stage 2.
//
// The sum over ranks comes before the sum over micro-steps. So the sequences of a micro-step must
// be neighbors over all ranks: in micro-step k rank r takes MBS sequences, from number (k N + r)
// MBS on. Each sum is a subtree of the batch, as before, if N MBS is a power of two, or if there is
// only one micro-step.
#pragma once

#include <bit>
#include <cstdint>
#include <optional>
#include <vector>

#include "chapters/04_clipping/accumulate.h"
#include "chapters/07_ddp/ddp.h"
#include "chapters/08_zero1/zero1.h"
#include "common/model/layout.h"
#include "common/model/tied_head.h"
#include "common/run/comm_stream.h"
#include "kernels/arena.h"
#include "kernels/kernels.h"

namespace ladder {

/// GA, where a rank has `share` sequences of the batch, and `micro` of them in a micro-step.
/// @param ranks sum each micro-step
/// @throws UserError if what they sum is no subtree of the batch, and an exact reduction would have
/// other bits
inline int64_t micro_steps(const DdpOptions& options, int64_t batch, int64_t share, int64_t micro,
                           int64_t ranks) {
  const int64_t sequences = ranks * micro;
  const bool is_subtree =
      sequences == batch || std::has_single_bit(static_cast<uint64_t>(sequences));
  if (is_exact(options.reduction) && !is_subtree)
    throw UserError(
        "the ranks sum {} sequences in a micro-step, which are no subtree of a batch of {}; legal "
        "with --reduction {} are 1, 2, 4, 8, ..., and the whole batch",
        sequences, batch, to_string(options.reduction));
  return share / micro;
}

/// This rank's chunks of all gradients. They are summed over micro-steps as by GradTree (chapter
/// 04).
struct ChunkSum {
  const ParamLayout* shard;
  TreeCounter tree;
  std::vector<Shard> buffers = {};  ///< F32
  int64_t k = 0, GA = 1;            ///< micro-step k of GA

  /// Places the counter at micro-step k of GA. (A stage of a pipeline comes to k in a late model
  /// chunk long before it does in an early one: chapter 33.)
  void begin(int64_t k_, int64_t GA_) {
    k = k_;
    GA = GA_;
    for (int64_t before = 0; before < k; ++before) {
      tree.begin(before);
      tree.end(before, GA);
    }
    tree.begin(k);
  }
  void end() { tree.end(k, GA); }

  /// Adds this rank's chunk of section s for micro-step k. F32 (elements of the chunk)
  void add(const Ctx& ctx, int64_t s, Tensor chunk) const {
    const Tensor sum = shard->section_of(buffers[tree.top()], s);
    if (tree.into() == Into::Write)
      ctx.kernels->cast(ctx, sum, chunk);  // a copy
    else
      ctx.kernels->add(ctx, sum, sum, chunk);
    tree.join(k, GA, [&](size_t to, size_t from) {
      const Tensor into = shard->section_of(buffers[to], s);
      ctx.kernels->add(ctx, into, into, shard->section_of(buffers[from], s));
    });
  }
};

/// Whole gradients of one section at a time, and this rank's chunks of the gradients of all
/// sections.
class ShardedGrads {
 public:
  /// @param layout,shard the parameters of the model, and this rank's chunks of them
  /// @param steps        GA, the micro-steps of a step
  ShardedGrads(Arena& arena, CommStream& comm_stream, const ParamLayout& layout,
               const ParamLayout& shard, const AccumulateOptions& options, int64_t steps)
      : comm_stream_(comm_stream),
        layout_(layout.grads()),
        shard_(shard.grads()),
        params_(shard),
        sum_{.shard = &shard_, .tree = TreeCounter(options.running())},
        buffers_(comm_stream.has_thread() ? 2 : 1) {
    for (int64_t i = 0; i < GradTree::buffers(options, steps); ++i)
      sum_.buffers.emplace_back(arena.zeros(i == 0 ? Mem::Grad : Mem::Workspace,
                                            fmt::format("grads{}", i), Dtype::F32,
                                            {shard_.size()}));
    for (SectionBuffer& section : buffers_)
      section.buffer =
          arena.zeros(Mem::Workspace, "section", Dtype::F32, {layout.largest_section()});
  }

  ShardedGrads(const ShardedGrads&) = delete;
  ShardedGrads& operator=(const ShardedGrads&) = delete;
  virtual ~ShardedGrads() = default;

  /// Adds what the constructor allocates to a prediction.
  /// @param layout,shard as the constructor has them, of parameters
  /// @param has_thread whether the communication stream has a thread
  static void add_bytes(MemoryBytes& bytes, const ParamLayout& layout, const ParamLayout& shard,
                        const AccumulateOptions& options, int64_t steps, bool has_thread) {
    GradTree::add_bytes(bytes, shard, options, steps);
    bytes[Mem::Workspace] += 4 * (has_thread ? 2 : 1) * layout.largest_section();
  }

  /// Begins micro-step k of GA.
  void begin(int64_t k, int64_t GA) { sum_.begin(k, GA); }

  /// Lets view() show a buffer for the gradients of section s. If a sum still uses that buffer,
  /// this waits.
  void begin_section(const Ctx& ctx, int64_t s) {
    turn_ = (turn_ + 1) % buffers_.size();
    wait(ctx, buffers_[turn_]);
    section_ = buffers_[turn_].buffer.first(layout_.section(s).size());
    layout_.put(view_, s, section_);
  }
  const GptTensors& view() const { return view_; }
  int64_t last_section() const { return layout_.sections() - 1; }

  /// Backward has written section s. Its chunks go to their ranks; this rank's chunk goes to the
  /// sum.
  void end_section(int64_t s) {
    // The job has a copy of the sum's state, of k and of the buffer that it adds to: when it runs,
    // this rank may be a micro-step ahead.
    buffers_[turn_].reduced = stream_of(s).run(
        [s, section = section_, sum = sum_](const Ctx& ctx, Collectives& collectives) {
          const Chunks chunks = chunks_of(section, collectives);
          {
            const Span span(ctx, "reduce_scatter");
            collectives.reduce_scatter(section, chunks);
          }
          sum.add(ctx, s, chunks.of(section, collectives.comm().rank()));
        });
  }

  /// Ends the micro-step.
  void end() { sum_.end(); }

  /// After the last micro-step: waits until this rank's chunks are sums over ranks and micro-steps.
  /// F32 (shard.grads().size())
  Shard sum(const Ctx& ctx) {
    for (SectionBuffer& section : buffers_) wait(ctx, section);
    return sum_.buffers[0];
  }
  /// The gradient, once sum() is that of the whole batch. F32 (shard.size()). It joins the two sums
  /// of a tied head.
  Shard finish(const Ctx& ctx) { return join_tied_head(ctx, params_, sum(ctx)); }

 protected:
  /// The stream that sums section s, over the ranks that have chunks of it: here one for all
  /// sections. Virtual for chapter 22 alone, where fewer ranks have the same experts.
  virtual CommStream& stream_of(int64_t /*s*/) { return comm_stream_; }

 private:
  struct SectionBuffer {
    Tensor buffer = {};    ///< F32 (largest section)
    Pending reduced = {};  ///< the sum over ranks of what is in it
  };
  static void wait(const Ctx& ctx, SectionBuffer& section) {
    const Span span(ctx, "wait_for_gradients");
    section.reduced.wait();
  }

  CommStream& comm_stream_;
  ParamLayout layout_, shard_;  ///< of gradients
  ParamLayout params_;          ///< this rank's
  ChunkSum sum_;
  std::vector<SectionBuffer> buffers_;
  size_t turn_ = 0;  ///< the buffer in use
  Tensor section_;   ///< lies in that buffer
  GptTensors view_;
};

/// Bytes that one rank sends in a step of GA micro-steps: GA reduce-scatters of F32 gradients and
/// an all-gather of weights, each section over the ranks that have chunks of it (here all). The
/// formula holds for reductions in which all ranks send equally many bytes. For others nothing is
/// predicted.
/// @param layout of parameters; grads() is that of their gradients
inline std::optional<int64_t> zero2_traffic(const ParamLayout& layout, const DdpOptions& options,
                                            const PrecisionOptions& precision, int64_t GA) {
  if (!options.sends_equally()) return std::nullopt;
  const ParamLayout grads = layout.grads();
  int64_t sum = 0;
  for (int64_t s = 0; s < layout.sections(); ++s) {
    const int64_t bytes =
        4 * GA * grads.section(s).size() + size_of(precision.dtype()) * layout.section(s).size();
    sum += bytes / layout.chunks(s) * (layout.chunks(s) - 1);
  }
  return sum;
}

}  // namespace ladder
