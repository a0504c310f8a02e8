// What a token counts: the losses of GRPO and DPO, and their gradients, as a weight for each token.
//
// Both train on whole answers. The model has one number for a token of an answer: its
// log-probability. So a loss of answers has a gradient for each token's log-probability, and that
// is all that backward needs: the weight of a token is minus this gradient. In pretraining each
// of n tokens weighs 1 / n.
//
//   GRPO   the answers to a prompt are a group, and each has a reward R. Its advantage is
//          A = (R - mean) / (std + 1e-4); the same for all its tokens. With ratio = p / p_old
//            loss = -min(ratio A, clip(ratio, 1 - low, 1 + high) A) + kl k3,
//            k3 = exp(d) - d - 1,  d = log p_base - log p
//   DPO    of two answers one is better. With h = log (p / p_base) of the better one, summed over
//          its tokens, minus that of the other one:
//            loss = log(1 + exp(-beta h))                    dpo, and dpo-norm with means for sums
//            loss = (h - 1 / (2 beta))^2                      ipo, with means for sums
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/math.h"
#include "kernels/narrow.h"

namespace ladder {

enum class RlLoss : uint8_t { Grpo, Dpo, DpoNorm, Ipo };
constexpr auto names_of(RlLoss) { return std::array{"grpo", "dpo", "dpo-norm", "ipo"}; }

enum class Advantage : uint8_t { Std, Mean };
constexpr auto names_of(Advantage) { return std::array{"std", "mean"}; }

/// The numbers of the formulas above.
struct Objective {
  RlLoss loss = RlLoss::Grpo;
  double beta = 0.1;
  Advantage advantage = Advantage::Std;
  double clip_low = 0.2, clip_high = 0.28;
  double kl = 0;

  bool of_pairs() const { return loss != RlLoss::Grpo; }
};

/// The advantages of a group. Rewards are integers, so their mean is exact where all are equal, and
/// all advantages are then exactly 0.
inline std::vector<double> advantages(std::span<const int64_t> rewards, Advantage kind) {
  const auto n = static_cast<double>(rewards.size());
  int64_t sum = 0;
  for (const int64_t reward : rewards) sum += reward;
  const double mean = static_cast<double>(sum) / n;
  std::vector<double> all;
  double squares = 0;
  for (const int64_t reward : rewards) {
    all.push_back(static_cast<double>(reward) - mean);
    squares += all.back() * all.back();
  }
  if (kind == Advantage::Mean) return all;
  const double deviation = std::sqrt(squares / (n - 1));  // unbiased
  for (double& advantage : all) advantage /= deviation + 1e-4;
  return all;
}

/// What one token of an answer adds to the loss, before it is divided.
struct TokenTerm {
  double loss, weight;
  double ratio = 1, kl = 0;  ///< p / p_old; k3 of the two
  bool clipped = false;      ///< the token has no gradient, but for that of --kl
};

/// k3 of d = log q - log p. Over tokens that p has drawn its mean is KL(p, q). Never negative.
inline double k3(double d) { return math::exp(d) - d - 1; }

/// @param now, old, base log p of the token: the model's, the sampler's, that of --base
inline TokenTerm grpo_token(const Objective& o, double advantage, double now, double old,
                            double base) {
  const double ratio = math::exp(now - old);
  const double bounded = std::clamp(ratio, 1 - o.clip_low, 1 + o.clip_high);
  TokenTerm term{.loss = -std::min(ratio * advantage, bounded * advantage),
                 .weight = ratio * advantage,
                 .ratio = ratio,
                 .kl = k3(old - now)};
  term.clipped = bounded * advantage < ratio * advantage;
  if (term.clipped) term.weight = 0;
  if (o.kl != 0) {
    term.loss += o.kl * k3(base - now);
    term.weight -= o.kl * (1 - math::exp(base - now));
  }
  return term;
}

/// What an answer does to the step. Ranks gather it, so it has the same order on each.
struct AnswerCounts {
  static constexpr int64_t kNumbers = 3;
  float ratio = 1;     ///< the largest of its tokens
  float distance = 0;  ///< sum of k3; DPO: h of the pair, at its first answer
  float clipped = 0;   ///< tokens
};

/// What an answer adds to the loss, before it is divided.
struct AnswerTerm {
  float loss;
  AnswerCounts counts;
};

/// Weighs the tokens of an answer.
/// @param now, old, base of each token, as above; base is empty without --kl
/// @param scale what every weight is multiplied with
inline AnswerTerm weigh_answer(const Objective& o, double advantage, std::span<const float> now,
                               std::span<const float> old, std::span<const float> base,
                               double scale, std::span<float> weights) {
  double loss = 0, kl = 0;
  float ratio = 0;
  int64_t clipped = 0;
  for (size_t i = 0; i < now.size(); ++i) {
    const TokenTerm term =
        grpo_token(o, advantage, now[i], old[i], base.empty() ? 0 : double{base[i]});
    weights[i] = static_cast<float>(term.weight * scale);
    loss += term.loss;
    kl += term.kl;
    ratio = larger(ratio, static_cast<float>(term.ratio));
    clipped += term.clipped ? 1 : 0;
  }
  return {.loss = static_cast<float>(loss),
          .counts = {ratio, static_cast<float>(kl), static_cast<float>(clipped)}};
}

/// What the sum of a step's losses is divided by: pairs, or tokens of all answers. With --advantage
/// mean it is the same for all steps, so that no answer weighs more because others are short.
inline int64_t loss_divisor(const Objective& o, int64_t answers, int64_t tokens,
                            int64_t max_tokens) {
  if (o.of_pairs()) return answers / 2;
  return o.advantage == Advantage::Mean ? answers * max_tokens : tokens;
}

/// Of an answer: sums of log p over its tokens.
struct AnswerSums {
  double now = 0, base = 0;
  int64_t tokens = 0;
};

/// What a pair adds to the loss, before it is divided, and the weight of each token of its answers.
struct PairTerm {
  double loss, chosen, rejected;
  double h;
};

inline PairTerm dpo_pair(const Objective& o, const AnswerSums& chosen, const AnswerSums& rejected) {
  const bool means = o.loss != RlLoss::Dpo;
  const double n_chosen = means ? static_cast<double>(chosen.tokens) : 1,
               n_rejected = means ? static_cast<double>(rejected.tokens) : 1;
  const double h =
      (chosen.now - chosen.base) / n_chosen - (rejected.now - rejected.base) / n_rejected;
  double loss = 0, slope = 0;  // slope: of the loss, by h
  if (o.loss == RlLoss::Ipo) {
    const double off = h - 1 / (2 * o.beta);
    loss = off * off;
    slope = 2 * off;
  } else {
    const double x = -o.beta * h, small = math::exp(-std::abs(x));  // neither overflows
    loss = math::log(1 + small) + std::max(x, 0.0);
    slope = -o.beta * (x > 0 ? 1 : small) / (1 + small);
  }
  return {.loss = loss, .chosen = -slope / n_chosen, .rejected = slope / n_rejected, .h = h};
}

}  // namespace ladder
