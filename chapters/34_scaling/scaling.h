// The rules that carry rate, eps, weight decay and initial weights of a narrow, shallow base model
// over to a wider and deeper one: muP (arXiv 2203.03466) for the width, CompleteP (2505.01618) for
// the depth.
//
//   --mup WIDTH,DEPTH     the base has WIDTH channels and DEPTH layers; --lr, --eps and
//                         --weight-decay are the base's
//   m = channels / WIDTH, d = layers / DEPTH
//
// The papers also multiply in forward: the head's product by 1 / m, what a branch adds to the
// residual stream by 1 / d. A product c (W x) equals (c W) x. So a factor c is folded into the
// weights, and forward stays as it is. Adam then has to move c W as it would have moved W: its rate
// is multiplied by c, eps and weight decay by 1 / c, because the gradient of c W is 1 / c of W's.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "common/error.h"
#include "common/model/layout.h"
#include "common/model/scaled_norm.h"
#include "common/number_in.h"
#include "common/run/command_line.h"
#include "kernels/kernels.h"

namespace ladder {

struct ScalingOptions {
  std::vector<std::string> mup;  ///< width and depth of the base; empty: those of the model
  bool coordinates = false;

  void add_to(CommandLine& line) {
    line.group("34_scaling");
    line.add("--mup", mup, "WIDTH,DEPTH of the base model that --lr, --eps, --weight-decay suit",
             {.list = true});
    line.add("--coordinates", coordinates, "--report has the mean size of activations, by step");
  }
};

/// What the base's numbers are multiplied by, for one parameter.
struct Factors {
  double std;    ///< of the initial std of chapter 01, for a model of this depth
  double rate;   ///< of --lr
  double eps;    ///< of --eps
  double decay;  ///< of --weight-decay

  /// The same for a weight that has absorbed a factor c of forward.
  Factors folded(double c) const { return {std * c, rate * c, eps / c, decay / c}; }
};

class Scaling {
 public:
  /// @throws UserError if --mup is not two numbers, if the base's width is no multiple of a head's
  /// channels, or if the head is tied, since a tied weight cannot absorb the head's factor alone
  Scaling(const ScalingOptions& options, const GptConfig& config) {
    if (options.mup.empty()) return;
    if (options.mup.size() != 2)
      throw UserError("--mup takes WIDTH,DEPTH of the base, not {} numbers", options.mup.size());
    const int64_t width = read(options.mup[0]), depth = read(options.mup[1]);
    if (width % config.head_size() != 0)
      throw UserError("--mup {}: the base's width must be a multiple of {}, the channels of a head",
                      width, config.head_size());
    if (config.tied_head) throw UserError("--mup is not for a tied head");
    is_on_ = true;
    m_ = static_cast<double>(config.channels) / static_cast<double>(width);
    d_ = static_cast<double>(config.layers) / static_cast<double>(depth);
  }

  bool is_on() const { return is_on_; }  ///< whether there is --mup

  /// The factor c of forward that a parameter has absorbed.
  double fold(Role role) const {
    switch (role) {
      case Role::Head: return 1 / m_;
      case Role::Projection:
      case Role::ProjectionBias: return 1 / d_;
      default: return 1;
    }
  }

  /// The table of the README, folded. @param in_block whether a block has the parameter
  Factors of(Role role, bool in_block) const {
    // A gradient falls as 1 / m, that of a block as 1 / (m d), and eps with it.
    const double eps = in_block ? 1 / (m_ * d_) : 1 / m_;
    return unfolded(role, eps).folded(fold(role));
  }

  /// Calls use(spec, factors) for each parameter.
  template <class Use>
  void for_each(const ParamLayout& layout, Use&& use) const {
    for (int64_t s = 0; s < layout.sections(); ++s)
      for (const ParamSpec& spec : layout.specs(s))
        use(spec, of(spec.role, 0 < s && s < layout.sections() - 1));
  }

  /// From the initial weights of chapter 01 to those of the table.
  void scale_init(const Ctx& ctx, Tensor params, const ParamLayout& layout) const {
    for_each(layout, [&](const ParamSpec& spec, const Factors& factors) {
      if (factors.std != 1 && spec.is_matrix())
        ctx.kernels->scale(ctx, layout.tensor(params, spec), static_cast<float>(factors.std));
    });
  }

  /// The global norm of the gradients that the weights had before they were folded: of c W the
  /// gradient is 1 / c of W's. So --clip has the same meaning at any width and depth.
  /// @param limbs I64 (kFolds, kLimbs), one row for each factor
  double grad_norm(const Ctx& ctx, Tensor grads, const ParamLayout& layout, Tensor limbs) const {
    return scaled_norm(ctx, grads, layout, limbs,
                       {.rows{1, fold(Role::Head), fold(Role::Projection)},
                        .of = [&](Role role) { return fold(role); }});
  }
  static constexpr int64_t kFolds = 3;

 private:
  /// The table as the papers have it.
  Factors unfolded(Role role, double eps) const {
    switch (role) {
      case Role::Matrix:
      case Role::Qkv:
      case Role::GateUp: return {1 / std::sqrt(m_), 1 / m_, eps, m_};
      // Chapter 01 divides by sqrt(2 L) with this model's depth, the table with the base's.
      case Role::Projection: return {std::sqrt(d_ / m_), 1 / m_, eps, m_};
      default: return {1, 1, eps, 1};
    }
  }

  static int64_t read(const std::string& text) {
    const auto number = number_in<int64_t>(text);
    if (!number || text.front() < '1' || text.front() > '9')
      throw UserError("--mup takes WIDTH,DEPTH, two numbers from 1, not {}", text);
    return *number;
  }

  bool is_on_ = false;
  double m_ = 1, d_ = 1;
};

}  // namespace ladder
