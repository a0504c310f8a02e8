// How long a stage takes for one micro-batch: F for its forward, I for the gradients of inputs, and
// W for the gradients of weights.
//
//   products       2 x tokens x elements of the matrices / tp    at the peak of the precision
//   attention      cost::attention_* / (tp cp)                   causal: half of all pairs
//   kernels        bytes of norms, residuals, activations, ...   at the rate of memory or cache
//   recomputation  what backward does again of these, with all-reduces of tensor ranks
//   tensor         all-reduces, or gathers and scatters          nothing is computed meanwhile
//   experts        two all-to-alls per block, of each           nothing is computed meanwhile
//                  chosen expert of a token
//   context        the ring of keys and values                   what attention does not hide
//   messages       activations between stages                    nothing is computed meanwhile
//
// Left out: the start of kernels, products that are slower beside a message, stragglers.
#pragma once

#include <array>
#include <cstdint>

#include "chapters/06_checkpointing/recompute.h"
#include "chapters/11_tensor_parallel/traffic.h"
#include "chapters/12_pipeline_parallel/pipeline.h"
#include "chapters/23_planner/device.h"
#include "chapters/23_planner/job.h"
#include "chapters/23_planner/seconds.h"
#include "kernels/cost.h"

namespace ladder::planner {

/// The times of the stages of one layout.
class StageModel {
 public:
  StageModel(const Job& job, const Device& device, const PlanLayout& layout)
      : job_(job),
        device_(device),
        l_(layout),
        part_(part_of(job, layout)),
        tokens_(static_cast<double>(layout.micro_batch * part_.seq_len)),
        tp_(static_cast<double>(layout.tp)),
        blocks_(static_cast<double>(job.gpt.layers / layout.pp)),
        peak_(device.peak(job.precision.name) * device.products),
        wide_(device.peak(job.precision.narrow() ? "bf16" : "fp32")) {}

  /// The time of one micro-batch on stage s.
  StageSeconds of(int64_t s) const {
    StageSeconds t;
    add_blocks(t);
    add_ends(t, s);
    add_tensor(t, s);
    add_experts(t);
    add_context(t);
    add_messages(t, s);
    add_again(t);
    return t;
  }

  /// How long backward computes again for one micro-batch on a stage.
  double again() const {
    const Recompute recompute = recompute_of(job_, l_);
    const double kernels = kernel_seconds()[0], core = core_forward();
    const double block = product_seconds() + core + kernels + 2 * reduction_seconds();
    double seconds = static_cast<double>(recompute.blocks_again()) * block;
    for (int64_t b = 0; b < part_.layers; ++b) {
      const DroppedParts parts = recompute.parts_before(b);
      seconds += (parts.attention ? core : 0) + (parts.norms || parts.act ? kernels : 0);
    }
    return seconds * static_cast<double>(l_.chunks);
  }

  Link tensor_link() const { return link_of(device_, 1, l_.tp); }
  Link expert_link() const { return link_of(device_, l_.tp, l_.ep); }
  Link context_link() const { return link_of(device_, l_.tp, l_.cp); }
  Link stage_link() const { return link_of(device_, l_.tp * l_.batch_ranks(), 2); }

 private:
  /// The time of one call of an operation that `ranks` ranks share. Costs are for FP32 and for one
  /// rank.
  double call_seconds(const Cost& cost, double ranks = 1) const {
    return device_.call_seconds(static_cast<double>(cost.bytes) / ranks *
                                static_cast<double>(size_of(job_.precision.dtype())) / 4);
  }
  double core_forward() const {
    return attention_seconds(
        cost::attention_forward(l_.micro_batch, job_.gpt.seq_len, part_.heads, part_.head_size()));
  }
  double core_backward() const {
    return attention_seconds(
        cost::attention_backward(l_.micro_batch, job_.gpt.seq_len, part_.heads, part_.head_size()));
  }
  double attention_seconds(const Cost& cost) const {
    return static_cast<double>(cost.flops) / (tp_ * static_cast<double>(l_.cp)) /
           (wide_ * device_.attention);
  }
  double product_seconds() const {
    return 2 * tokens_ * static_cast<double>(part_.block_matrices()) / tp_ / peak_;
  }

  /// The time of kernels in one block that are no products: forward, backward of inputs, backward
  /// of weights.
  std::array<double, 3> kernel_seconds() const {
    const int64_t B = l_.micro_batch, T = part_.seq_len, C = part_.channels;
    const bool swiglu = part_.mlp == Mlp::SwiGlu, rope = part_.position == Position::Rope;
    const int64_t n = B * T * (part_.inner() + part_.experts.chosen * part_.expert_inner());
    const double turn =
        rope ? call_seconds(cost::rope(B, T, part_.heads, part_.groups(), part_.head_size()), tp_)
             : 0;
    const auto sp = static_cast<double>(job_.sequence_parallel ? l_.tp : 1);
    const double residual = 2 * call_seconds(cost::residual_forward(B * T, C), sp);
    double bias = 0;
    if (part_.bias)
      for (const int64_t outputs : {part_.qkv_rows(), part_.fc_rows(), C, C})
        bias += call_seconds(cost::bias_backward(B, T, outputs), tp_);
    const auto [rows_forward, rows_backward] = expert_row_seconds();
    return {residual + turn + rows_forward + 2 * call_seconds(cost::norm_forward(B, T, C), sp) +
                call_seconds(swiglu ? cost::swiglu_forward(n) : cost::gelu_forward(n), tp_),
            residual + turn + rows_backward +
                2 * call_seconds(cost::norm_backward_input(B, T, C), sp) +
                call_seconds(swiglu ? cost::swiglu_backward(n) : cost::gelu_backward(n), tp_),
            2 * call_seconds(cost::norm_backward_weight(B, T, C), sp) + bias};
  }

  /// The time of chapter 21's kernels, forward and backward: the router's choice, and bringing rows
  /// to their experts and back.
  std::array<double, 2> expert_row_seconds() const {
    const int64_t B = l_.micro_batch, T = part_.seq_len, C = part_.channels;
    const int64_t E = part_.experts.count, k = part_.experts.chosen;
    if (E == 0) return {};
    const double there = call_seconds(cost::gather_rows(B, T, k, C)),
                 back = call_seconds(cost::unpermute_forward(B, T, k, C));
    return {call_seconds(cost::route_forward(B, T, E, k)) + there + back,
            call_seconds(cost::route_backward(B, T, E, k)) + back +
                call_seconds(cost::unpermute_backward(B, T, k, C))};
  }

  void add_blocks(StageSeconds& t) const {
    const auto kernels = kernel_seconds();
    size_t i = 0;
    for (Seconds* phase : {&t.forward, &t.input, &t.weight}) {
      (*phase)[Term::Products] = blocks_ * product_seconds();
      (*phase)[Term::Kernels] = blocks_ * kernels[i++];
    }
    t.forward[Term::Attention] = blocks_ * core_forward();
    t.input[Term::Attention] = blocks_ * core_backward();
  }

  /// Adds the embedding of the first stage, and the norm and the head of the last.
  void add_ends(StageSeconds& t, int64_t s) const {
    const int64_t B = l_.micro_batch, T = part_.seq_len, C = part_.channels;
    if (s == 0) {
      t.forward[Term::Kernels] += call_seconds(cost::embed_forward(B, T, C));
      t.weight[Term::Kernels] += call_seconds(cost::embed_backward(B, T, C, 0));
    }
    if (!l_.is_last(s)) return;
    const double head = 2 * tokens_ * static_cast<double>(C * part_.padded_vocab) / tp_ /
                        (wide_ * device_.products);
    for (Seconds* phase : {&t.forward, &t.input, &t.weight}) (*phase)[Term::Head] = head;
    t.forward[Term::Kernels] += call_seconds(cost::cross_entropy(B, T, part_.padded_vocab), tp_);
  }

  /// The time of one sum over ranks in a block. It is the formula of chapter 11, asked for a model
  /// that has only an embedding.
  double reduction_seconds() const {
    if (l_.tp == 1) return 0;
    const ActivationPlan acts = activations_of(job_, l_, 0);
    const int64_t bytes = tp_traffic(
        part_, acts, {.blocks = 0, .again = 0, .embed = true, .head = false}, l_.micro_batch);
    return tensor_link().seconds(static_cast<double>(bytes), messages_of_all_reduce(l_.tp));
  }
  /// Each block has two in forward and two in backward; embedding and head have one each. With
  /// sequence parallelism, the gradients of weights gather twice more in a block.
  void add_tensor(StageSeconds& t, int64_t s) const {
    const double each = reduction_seconds();
    t.forward[Term::Tensor] = (2 * blocks_ + (s == 0 ? 1 : 0)) * each;
    t.input[Term::Tensor] = (2 * blocks_ + (l_.is_last(s) ? 1 : 0)) * each;
    if (job_.sequence_parallel) t.weight[Term::Tensor] = blocks_ * each;
  }

  /// Each token goes to its experts and comes back, in forward and in backward.
  void add_experts(StageSeconds& t) const {
    if (l_.ep == 1) return;
    const auto ep = static_cast<double>(l_.ep);
    const double bytes = 2 * tokens_ * static_cast<double>(part_.experts.chosen * part_.channels) *
                         (ep - 1) / ep * static_cast<double>(size_of(job_.precision.dtype()));
    const double each = expert_link().seconds(bytes, 2 * (ep - 1));
    t.forward[Term::Experts] = t.input[Term::Experts] = blocks_ * each;
  }

  /// Ring attention: the keys and values of one rank go on to the next rank cp - 1 times. In
  /// backward, their gradients go with them.
  void add_context(StageSeconds& t) const {
    if (l_.cp == 1) return;
    const auto cp = static_cast<double>(l_.cp);
    const double bytes = 2 * tokens_ * static_cast<double>(part_.groups() * part_.head_size()) /
                         tp_ * static_cast<double>(size_of(job_.precision.dtype()));
    const double ring = context_link().seconds((cp - 1) * bytes, cp - 1);
    t.forward[Term::Context] = blocks_ * device_.exposed(ring, core_forward());
    t.input[Term::Context] = blocks_ * device_.exposed(2 * ring, core_backward());
  }

  void add_messages(StageSeconds& t, int64_t s) const {
    if (l_.pp == 1) return;
    const double each = stage_link().seconds(message_bytes(), 1);
    const auto chunks = static_cast<double>(l_.chunks);
    t.forward[Term::Messages] = (chunks - (l_.is_last(s) ? 1 : 0)) * each;
    t.input[Term::Messages] = (chunks - (s == 0 ? 1 : 0)) * each;
  }
  double message_bytes() const {
    const ActivationPlan acts = activations_of(job_, l_, 0);
    return static_cast<double>(l_.micro_batch * acts.local_tokens(part_.seq_len) * part_.channels *
                               size_of(acts.dtype));
  }

  /// Recomputation comes before the gradients of inputs. If the gradients of weights come later, it
  /// comes before those once more.
  void add_again(StageSeconds& t) const {
    const double each = again();
    t.input[Term::Again] = each;
    if (l_.pp > 1 && l_.schedule == PipelineKind::ZbH1) t.weight[Term::Again] = each;
  }

  const Job& job_;
  const Device& device_;
  const PlanLayout& l_;
  GptConfig part_;
  double tokens_, tp_, blocks_;  ///< of a micro-batch on one context rank; of a stage
  double peak_, wide_;           ///< achieved for products; the peak for attention and head
};

}  // namespace ladder::planner
