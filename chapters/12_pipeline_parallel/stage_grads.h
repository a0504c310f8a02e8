// The gradient of a stage's parameters: one set of buffers, with a counter for each piece of them.
//
// The model chunks of a stage, and the head, reach micro-batch k at different times. If a stage has
// two chunks, the later chunk has added gradients of several micro-batches before the earlier one
// begins. So each piece counts its own micro-steps, and joins its own elements of the buffers by
// the tree of chapter 04:
//
//   elements of a stage's buffers     chunk 0  |  chunk 1  |  head      with two stages
//   micro-batch that comes next          1           2         2
#pragma once

#include <cstdint>
#include <vector>

#include <fmt/format.h>

#include "chapters/04_clipping/accumulate.h"
#include "chapters/12_pipeline_parallel/stage_layout.h"
#include "common/model/layout.h"
#include "common/model/tied_head.h"
#include "kernels/arena.h"
#include "kernels/kernels.h"

namespace ladder {

/// The buffers of a stage, and for each piece how far it has come in a step.
class StageGrads {
 public:
  /// How far one piece has come in a step. All pieces use the same buffers.
  class Piece {
   public:
    Piece(const StageGrads& all, Range elements, bool running)
        : all_(&all), elements_(elements), tree_(running) {}

    /// Begins micro-step k: backward puts its gradients into view() as into() says.
    void begin(int64_t k) { tree_.begin(k); }
    const GptTensors& view() const { return all_->views_[tree_.top()]; }
    Into into() const { return tree_.into(); }
    /// Ends micro-step k of GA.
    void end(const Ctx& ctx, int64_t k, int64_t GA) {
      const auto own = [&](size_t i) {
        return all_->flat_[i].slice(elements_.begin, elements_.size());
      };
      tree_.join(k, GA, [&](size_t to, size_t from) {
        ctx.kernels->add(ctx, own(to), own(to), own(from));
      });
      tree_.end(k, GA);
    }

   private:
    const StageGrads* all_;
    Range elements_;
    TreeCounter tree_;
  };

  /// @param stage its model chunks, and the head, are the pieces
  /// @param steps GA, the micro-steps of a step
  StageGrads(Arena& arena, const ParamLayout& layout, const StageLayout& stage,
             const AccumulateOptions& options, int64_t steps)
      : params_(layout) {
    const ParamLayout grads = layout.grads();
    for (int64_t i = 0; i < GradTree::buffers(options, steps); ++i) {
      const Mem mem = i == 0 ? Mem::Grad : Mem::Workspace;
      flat_.push_back(arena.zeros(mem, fmt::format("grads{}", i), Dtype::F32, {grads.size()}));
      views_.push_back(grads.view(flat_.back()));
    }
    for (const Range& elements : stage.pieces(layout))
      pieces_.emplace_back(*this, elements, options.running());
  }
  StageGrads(const StageGrads&) = delete;
  StageGrads& operator=(const StageGrads&) = delete;

  Piece& piece(int64_t chunk) { return pieces_[static_cast<size_t>(chunk)]; }
  Piece& head() { return pieces_.back(); }
  /// As those of GradTree, once all pieces have ended their last micro-step. (A tied head is only
  /// for --pp 1: with more stages no stage has both its gradients.)
  Tensor sum() const { return flat_[0]; }
  Tensor finish(const Ctx& ctx) const { return join_tied_head(ctx, params_, sum()); }

 private:
  ParamLayout params_;
  std::vector<Tensor> flat_;
  std::vector<GptTensors> views_;
  std::vector<Piece> pieces_;
};

}  // namespace ladder
