// Scorer: from the last norm of a row to the log-likelihoods of its texts.
//
// The head computes the scored positions alone. Each of them is a row of a product, a sequence of
// one token to the loss, and an argmax. None of these knows its neighbors. The sum over the tokens
// of a text is one chain in double. So a text has the same bits in any row, and padding is in no
// sum.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "chapters/31_generate/batch.h"
#include "chapters/35_evaluate/scores.h"
#include "common/model/config.h"
#include "common/model/parts.h"
#include "common/run/logits.h"
#include "kernels/arena.h"
#include "kernels/transfer.h"
#include "kernels/tree.h"

namespace ladder {

class Scorer {
 public:
  Scorer(Arena& arena, const GptConfig& config, Dtype dtype)
      : vocab_(config.vocab),
        last_(arena.alloc(Mem::Activation, "last", dtype, {config.seq_len, config.channels})),
        targets_(arena.shared(Mem::Activation, "targets", Dtype::I32, {config.seq_len, 1})),
        losses_(arena.shared(Mem::Activation, "losses", Dtype::F32, {config.seq_len})) {}
  static int64_t bytes(const GptConfig& config, Dtype dtype) {
    return config.seq_len * (size_of(dtype) * config.channels + 4 + 4);
  }

  /// @param logits (T,Vp), to write
  /// @param norm   (T,C), of a row
  /// @param learned of each position, its target: the token behind it
  /// @param scored  of each text, which positions are scored
  std::vector<LogLikelihood> score(const Ctx& ctx, Tensor logits, Tensor norm, Tensor head_w,
                                   std::span<const int32_t> learned,
                                   const std::vector<Range>& scored) const {
    const int64_t C = norm.dim(1), Vp = logits.dim(1);
    int32_t* const targets = targets_.data<int32_t>();
    int64_t W = 0;
    for (const Range& at : scored) {
      const int64_t n = at.size();
      ctx.kernels->copy_columns(ctx, last_.slice(W, n).view({n, 1, C}), 0,
                                norm.slice(at.begin, n).view({n, 1, C}), 0, C);
      std::copy_n(learned.begin() + at.begin, n, targets + W);
      W += n;
    }
    const Tensor losses = losses_.first(W);
    logits = logits.first(W);
    head_forward(ctx, logits.view({1, W, Vp}), last_.first(W).view({1, W, C}), head_w);
    head_loss(ctx, losses, logits.view({W, 1, Vp}), targets_.first(W), vocab_);
    const HostCopy host = HostCopy::of(ctx, logits);

    std::vector<LogLikelihood> scores(scored.size());
    int64_t w = 0;
    for (size_t text = 0; text < scored.size(); ++text)
      for (const int64_t end = w + scored[text].size(); w < end; ++w) {
        const std::vector<float> values = row_of(host.tensor().slice(w, 1));
        const auto end_of_tokens = values.begin() + vocab_;  // behind it lies padding
        const auto most = std::max_element(values.begin(), end_of_tokens) - values.begin();
        scores[text] +=
            {.sum = -losses.data<float>()[w], .greedy = most == targets[w], .tokens = 1};
      }
    return scores;
  }

 private:
  int64_t vocab_;
  Tensor last_;              ///< (T,C), of the scored positions
  Tensor targets_, losses_;  ///< (T,1) I32, (T)
};

}  // namespace ladder
