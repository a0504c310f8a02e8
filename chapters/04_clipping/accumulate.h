// Gradient accumulation: computes a batch of GBS = MBS x GA sequences, MBS at a time.
//
// This divides the memory for activations by GA, and must not change a bit of the gradient. So the
// GA partial gradients are joined by the same balanced tree that joins sequences inside a call:
//
//   k = 0: A = g0     k = 1: A += g1                  A holds g0+g1
//   k = 2: B = g2     k = 3: B += g3,  A += B         A holds (g0+g1)+(g2+g3)
//
// An even micro-step writes a fresh buffer, and an odd one adds to it. Then full levels are merged.
// This takes floor(log2(GA + 1)) buffers. `--accumulate running` adds everything into one buffer,
// as most programs do. It takes less memory, but the sum then depends on how the batch is cut.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <vector>

#include "common/error.h"
#include "common/model/layout.h"
#include "common/run/command_line.h"
#include "kernels/arena.h"
#include "kernels/kernels.h"

namespace ladder {

enum class AccumulateMode : uint8_t { Tree, Running };
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

/// Which buffer each part of a tree sum goes to, if parts come one by one: a binary counter.
class TreeCounter {
 public:
  /// How many buffers `parts` parts take.
  static int64_t buffers(int64_t parts) {
    return std::bit_width(static_cast<uint64_t>(parts) + 1) - 1;
  }

  /// Part k goes into buffer top(). If fresh(), it is written there, otherwise added.
  void begin(int64_t k) {
    if (k == 0) top_ = 0;
    fresh_ = k % 2 == 0;
    if (fresh_ && k > 0) ++top_;
  }
  size_t top() const { return top_; }
  bool fresh() const { return fresh_; }

  /// After part k of n: calls join(to, from) for the levels that are full; after the last part, for
  /// all levels. It may be called once for each piece of the buffers, as GradTree::join() does.
  template <class Join>
  void join(int64_t k, int64_t n, Join&& join) const {
    for (size_t i = 0; i < full(k, n); ++i) join(top_ - i - 1, top_ - i);
  }
  /// Ends part k of n. From here on, what join() has joined counts as one buffer.
  void end(int64_t k, int64_t n) { top_ -= full(k, n); }

 private:
  /// k + 1 parts are done. As in a binary counter, each trailing zero of k + 1 is a full level. The
  /// lowest level needs no join, because an odd part is added into its buffer.
  size_t full(int64_t k, int64_t n) const {
    if (k + 1 == n) return top_;
    return static_cast<size_t>(std::max(1, std::countr_zero(static_cast<uint64_t>(k) + 1)) - 1);
  }

  size_t top_ = 0;
  bool fresh_ = true;
};

/// The gradient buffers of a step. It knows which of them micro-step k works on.
class GradTree {
 public:
  /// @param steps GA, the micro-steps of a step
  GradTree(Arena& arena, const ParamLayout& layout, const AccumulateOptions& options, int64_t steps)
      : running_(options.running()), layout_(layout.grads()) {
    // Zeros: what adds or scales whole buffers also reads the gaps between tensors.
    for (int64_t i = 0; i < buffers(options, steps); ++i) {
      const Mem mem = i == 0 ? Mem::Grad : Mem::Workspace;
      flat_.push_back(arena.zeros(mem, fmt::format("grads{}", i), Dtype::F32, {layout_.size()}));
      views_.push_back(layout_.view(flat_.back()));
    }
  }

  /// How many buffers `steps` micro-steps take. The first is the gradient, the others are
  /// Workspace.
  static int64_t buffers(const AccumulateOptions& options, int64_t steps) {
    return options.running() ? 1 : TreeCounter::buffers(steps);
  }

  /// Begins micro-step k. Its backward puts gradients into view(), in the way that into() says.
  void begin(int64_t k) {
    first_ = k == 0;
    if (!running_) tree_.begin(k);
  }
  const GptTensors& view() const { return views_[tree_.top()]; }
  /// The same buffer, flat.
  Tensor flat() const { return flat_[tree_.top()]; }
  Into into() const { return (running_ ? first_ : tree_.fresh()) ? Into::Write : Into::Add; }

  /// Ends micro-step k of GA.
  void end(const Ctx& ctx, int64_t k, int64_t GA) {
    for (int64_t s = 0; s < layout_.sections(); ++s) join(ctx, k, GA, s);
    close(k, GA);
  }
  /// end() in two parts, for chapter 07: join() for each section, as soon as its gradients of this
  /// micro-batch are complete, and then close().
  void join(const Ctx& ctx, int64_t k, int64_t GA, int64_t s) const {
    if (running_) return;
    const Range elements = layout_.section(s);
    const auto part = [&](size_t i) { return flat_[i].slice(elements.begin, elements.size()); };
    tree_.join(k, GA, [&](size_t to, size_t from) {
      ctx.kernels->add(ctx, part(to), part(to), part(from));
    });
  }
  void close(int64_t k, int64_t GA) {
    if (!running_) tree_.end(k, GA);
  }

  /// The gradient of the whole batch, once the last micro-step has ended. It is flat, laid out as
  /// layout.grads().
  Tensor sum() const { return flat_[0]; }

 private:
  bool running_;
  ParamLayout layout_;
  std::vector<Tensor> flat_;
  std::vector<GptTensors> views_;
  TreeCounter tree_;
  bool first_ = true;
};

}  // namespace ladder
