// Gradient accumulation: computes a batch of GBS = MBS x GA sequences, MBS at a time.
//
// This divides the memory for activations by GA, and must not change a bit of the gradient. So the
// GA partial gradients are joined by the same balanced tree that joins sequences inside a call:
//
//   k = 0: A = g0     k = 1: A += g1                  A holds g0+g1
//   k = 2: B = g2     k = 3: B += g3,  A += B         A holds (g0+g1)+(g2+g3)
//
// An even micro-step writes a fresh buffer, and an odd one adds to it. Then buffers with equally
// many gradients are added. This takes floor(log2(GA + 1)) buffers. `--accumulate running` adds
// everything into one buffer, as most programs do. It takes less memory, but the sum then depends
// on how the batch is cut.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <vector>

#include "common/error.h"
#include "common/model/layout.h"
#include "common/model/tied_head.h"
#include "common/run/command_line.h"
#include "kernels/arena.h"
#include "kernels/kernels.h"

namespace ladder {

enum class AccumulateMode : uint8_t { Tree, Running };
// The argument only says whose names these are (common/names.h).
constexpr auto names_of(AccumulateMode) { return std::array{"tree", "running"}; }

struct AccumulateOptions {
  int64_t micro_batch = 0;  ///< MBS; 0: the whole batch at once
  AccumulateMode mode = AccumulateMode::Tree;

  void add_to(CommandLine& line) {
    line.group("04_clipping");
    line.add("--micro-batch", micro_batch, "sequences at a time; 0: the whole batch");
    line.add("--accumulate", mode, "tree (same bits for every split) or running (one buffer)");
  }

  bool running() const { return mode == AccumulateMode::Running; }

  /// MBS for a step of `batch` sequences. It is never larger than the batch.
  /// @throws UserError unless MBS is the whole batch, or a power of two that divides it: otherwise
  /// the micro-batches are no subtrees of the batch
  int64_t micro(int64_t batch) const {
    if (micro_batch < 0) throw UserError("--micro-batch must be at least 0, not {}", micro_batch);
    const int64_t mbs = micro_batch == 0 ? batch : std::min(micro_batch, batch);
    if (!legal(mbs, batch))
      throw UserError("--micro-batch {} does not suit a batch of {}; legal are {}", micro_batch,
                      batch, fmt::join(legal_for(batch), ", "));
    return mbs;
  }

 private:
  static bool legal(int64_t mbs, int64_t batch) {
    return mbs == batch || (batch % mbs == 0 && std::has_single_bit(static_cast<uint64_t>(mbs)));
  }
  static std::vector<int64_t> legal_for(int64_t batch) {
    std::vector<int64_t> all;
    for (int64_t mbs = 1; mbs <= batch; ++mbs)
      if (legal(mbs, batch)) all.push_back(mbs);
    return all;
  }
};

/// Says which buffer each part of a tree sum goes to, where parts come one by one: a binary
/// counter. Here a part is the gradient of a micro-batch. With `running` all go to one buffer.
class TreeCounter {
 public:
  explicit TreeCounter(bool running = false) : running_(running) {}

  /// Buffers that `parts` parts of a tree take: floor(log2(parts + 1)).
  static int64_t buffers(int64_t parts) {
    return std::bit_width(static_cast<uint64_t>(parts) + 1) - 1;
  }

  /// Part k goes into buffer top(), written or added as into() says.
  void begin(int64_t k) {
    if (k == 0) top_ = 0;
    fresh_ = k % 2 == 0;
    if (running_) fresh_ = k == 0;
    if (fresh_ && k > 0) ++top_;
  }
  size_t top() const { return top_; }
  Into into() const { return fresh_ ? Into::Write : Into::Add; }

  /// After part k of n: calls merge(to, from) for two buffers with equally many parts, as long as
  /// there are such; after the last part, until one buffer is left. GradTree::join() calls it once
  /// for each section of the buffers.
  template <class Merge>
  void join(int64_t k, int64_t n, Merge&& merge) const {
    for (size_t i = 0; i < joins_after(k, n); ++i) merge(top_ - i - 1, top_ - i);
  }
  /// Ends part k of n: buffers that join() has joined now count as one.
  void end(int64_t k, int64_t n) { top_ -= joins_after(k, n); }

 private:
  /// How many joins follow part k. As in a binary counter, each trailing zero of k + 1 is a carry.
  /// The lowest carry needs no join, because backward adds an odd part to the buffer of the part
  /// before. So there is one join less than there are zeros, and at least 0: for k = 0, 1, 2, ... 7
  /// these are 0 0 0 1 0 0 0 2. After the last part all buffers are joined.
  size_t joins_after(int64_t k, int64_t n) const {
    if (running_) return 0;
    if (k + 1 == n) return top_;
    return static_cast<size_t>(std::max(1, std::countr_zero(static_cast<uint64_t>(k) + 1)) - 1);
  }

  bool running_;
  size_t top_ = 0;
  bool fresh_ = true;
};

/// The gradient buffers of a step, one of which micro-step k works on.
///
///   for each k of GA:
///     grads.begin(k);
///     backward(... grads.view(), grads.into());   writes the buffer of micro-step k, or adds to it
///     grads.end(ctx, k, GA);                      joins buffers with equally many gradients
///   Tensor sum = grads.finish(ctx);               the gradient of the whole batch
class GradTree {
 public:
  /// @param steps GA, the micro-steps of a step
  GradTree(Arena& arena, const ParamLayout& layout, const AccumulateOptions& options, int64_t steps)
      : params_(layout), layout_(layout.grads()), tree_(options.running()) {
    // Zeros: operations on whole buffers, such as add and scale, also read the gaps between
    // tensors.
    for (int64_t i = 0; i < buffers(options, steps); ++i) {
      const Mem mem = i == 0 ? Mem::Grad : Mem::Workspace;
      flat_.push_back(arena.zeros(mem, fmt::format("grads{}", i), Dtype::F32, {layout_.size()}));
      views_.push_back(layout_.view(flat_.back()));
    }
  }

  /// How many buffers `steps` micro-steps take. The first counts as Grad, the others as Workspace.
  static int64_t buffers(const AccumulateOptions& options, int64_t steps) {
    return options.running() ? 1 : TreeCounter::buffers(steps);
  }
  /// Adds what the constructor allocates to a prediction.
  static void add_bytes(MemoryBytes& bytes, const ParamLayout& layout,
                        const AccumulateOptions& options, int64_t steps) {
    const int64_t buffer = 4 * layout.grads().size();
    bytes[Mem::Grad] += buffer;
    bytes[Mem::Workspace] += (buffers(options, steps) - 1) * buffer;
  }

  /// Begins micro-step k of a step: backward puts its gradients into view() as into() says.
  void begin(int64_t k) { tree_.begin(k); }
  const GptTensors& view() const { return views_[tree_.top()]; }
  /// The same buffer, flat.
  Tensor flat() const { return flat_[tree_.top()]; }
  Into into() const { return tree_.into(); }

  /// Ends micro-step k of GA.
  void end(const Ctx& ctx, int64_t k, int64_t GA) {
    for (int64_t s = 0; s < layout_.sections(); ++s) join(ctx, k, GA, s);
    close(k, GA);
  }
  /// end() in two halves, for chapters that send gradients during backward (07 and later). They
  /// call join() for each section of the flat buffer (the embeddings, a block, or the head) as soon
  /// as its gradients of this micro-batch are there, then close().
  void join(const Ctx& ctx, int64_t k, int64_t GA, int64_t s) const {
    const Range elements = layout_.section(s);
    const auto part = [&](size_t i) { return flat_[i].slice(elements.begin, elements.size()); };
    tree_.join(k, GA, [&](size_t to, size_t from) {
      ctx.kernels->add(ctx, part(to), part(to), part(from));
    });
  }
  void close(int64_t k, int64_t GA) { tree_.end(k, GA); }

  /// The sum over micro-steps, flat, once the last one has ended.
  Tensor sum() const { return flat_[0]; }
  /// The gradient of the whole batch, flat (layout.size()). Call it once a step, when sum() is
  /// complete. It joins the two sums of a tied head.
  Tensor finish(const Ctx& ctx) const { return join_tied_head(ctx, params_, sum()); }

 private:
  /// Where parameters lie, and where gradients lie. The two are the same without `--tied-head`
  /// (chapter 01). With it gradients have a second place for the head: the head's gradient and the
  /// embedding's are summed over micro-steps each by itself, and added once at the end.
  ParamLayout params_, layout_;
  std::vector<Tensor> flat_;
  std::vector<GptTensors> views_;
  TreeCounter tree_;
};

}  // namespace ladder
