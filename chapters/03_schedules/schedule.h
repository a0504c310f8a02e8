// Learning-rate schedules: warmup, then constant, linear, cosine, or warmup-stable-decay (WSD).
//
// Steps s count from 0. W steps of warmup, D steps of decay, peak = --lr, low = --min-lr x peak,
// p = (s - first step of the decay) / D, clamped to [0, 1]:
//   s < W                  peak (s + 1) / W
//   constant               peak
//   linear                 peak + (low - peak) p
//   cosine                 low + (peak - low) (1 + cos(pi p)) / 2
//   wsd                    linear, cosine, or exponential: peak (low / peak)^p
// The decay begins after warmup; with wsd it begins D steps before the end.
// Sources: arXiv 1608.03983 (cosine), 2404.06395 (WSD).
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <numbers>
#include <utility>

#include "common/error.h"
#include "common/run/command_line.h"
#include "kernels/math.h"

namespace ladder {

/// Exponential is a decay of wsd alone.
enum class ScheduleKind : uint8_t { Constant, Linear, Cosine, Wsd, Exponential };
constexpr auto names_of(ScheduleKind) {
  return std::array{"constant", "linear", "cosine", "wsd", "exponential"};
}

struct ScheduleOptions {
  static constexpr int64_t kMaxTokens = int64_t{1} << 40;  // larger than any warmup

  ScheduleKind kind = ScheduleKind::Constant;
  int64_t warmup = 0;         ///< in steps
  int64_t warmup_tokens = 0;  ///< in tokens instead; 0: --warmup counts
  double min_lr = 0.1;        ///< as a share of the peak
  int64_t decay_steps = 0;    ///< 0: all steps after warmup; with wsd the last fifth of all steps
  ScheduleKind wsd_decay = ScheduleKind::Linear;

  void add_to(CommandLine& line) {
    line.group("03_schedules");
    line.add("--schedule", kind, "constant, linear, cosine or wsd",
             {.legal = {"constant", "linear", "cosine", "wsd"}});
    line.add("--warmup", warmup, "steps until the learning rate is --lr");
    line.add("--warmup-tokens", warmup_tokens, "the same, counted in tokens",
             {.instead_of = "--warmup"});
    line.add("--min-lr", min_lr, "where the decay ends, as a share of --lr");
    line.add("--decay-steps", decay_steps,
             "length of the decay; 0: all after warmup, for wsd the last fifth of --steps");
    line.add("--wsd-decay", wsd_decay, "linear, cosine or exponential",
             {.legal = {"linear", "cosine", "exponential"}});
  }

  /// @throws UserError
  void check() const {
    if (warmup < 0) throw UserError("--warmup must be at least 0, not {}", warmup);
    require_range("--warmup-tokens", warmup_tokens, 0, kMaxTokens);
    if (!(min_lr >= 0 && min_lr <= 1))
      throw UserError("--min-lr must be in [0, 1], not {}", min_lr);
    if (decay_steps < 0) throw UserError("--decay-steps must be at least 0, not {}", decay_steps);
    for (const auto& [flag, given] : {std::pair{"--min-lr", min_lr != ScheduleOptions{}.min_lr},
                                      {"--decay-steps", decay_steps > 0}})
      if (given && kind == ScheduleKind::Constant)
        throw UserError("{} is for --schedule linear, cosine or wsd, not constant", flag);
    if (kind != ScheduleKind::Wsd && wsd_decay != ScheduleKind::Linear)
      throw UserError("--wsd-decay is for --schedule wsd, not {}", to_string(kind));
    if (wsd_decay == ScheduleKind::Exponential && min_lr == 0)
      throw UserError("--wsd-decay exponential never comes to 0; legal is a --min-lr above 0");
  }
};

class Schedule {
 public:
  /// The tokens of steps 0 .. step - 1 together. In double, because those of a long run may not fit
  /// int64_t.
  using TokensBefore = std::function<double(int64_t step)>;

  /// @param peak    --lr
  /// @param steps   --steps; wsd's decay ends there
  /// @param tokens  per step; warmup may be counted in tokens
  Schedule(const ScheduleOptions& options, double peak, int64_t steps, int64_t tokens)
      : Schedule(options, peak, steps, [tokens](int64_t step) {
          return static_cast<double>(step) * static_cast<double>(tokens);
        }) {}
  /// The same for steps that differ in their number of tokens (chapter 15).
  Schedule(const ScheduleOptions& options, double peak, int64_t steps, TokensBefore tokens_before)
      : options_(options), peak_(peak), tokens_before_(std::move(tokens_before)) {
    warmup_ =
        options.warmup_tokens > 0 ? steps_until(options.warmup_tokens, steps) : options.warmup;
    const bool wsd = options.kind == ScheduleKind::Wsd;
    decay_ = options.decay_steps;
    if (decay_ == 0) decay_ = std::max<int64_t>(1, wsd ? steps / 5 : steps - warmup_);
    decay_begin_ = wsd ? std::max(warmup_, steps - decay_) : warmup_;
  }

  /// The learning rate of a step. Steps count from 0.
  float lr(int64_t step) const {
    if (step < warmup_) return static_cast<float>(peak_ * warmup_share(step));
    const double p = std::clamp(
        static_cast<double>(step - decay_begin_) / static_cast<double>(decay_), 0.0, 1.0);
    const double low = options_.min_lr * peak_;
    const bool wsd = options_.kind == ScheduleKind::Wsd;
    const ScheduleKind shape = wsd ? options_.wsd_decay : options_.kind;
    if (shape == ScheduleKind::Linear) return static_cast<float>(peak_ + (low - peak_) * p);
    if (shape == ScheduleKind::Cosine)
      return static_cast<float>(low + (peak_ - low) * (1 + math::cos(std::numbers::pi * p)) / 2);
    if (shape == ScheduleKind::Exponential)
      return static_cast<float>(peak_ * math::exp(p * math::log(options_.min_lr)));
    return static_cast<float>(peak_);
  }

 private:
  /// The first step that has at least `tokens` tokens before it, or `steps` if there is none.
  int64_t steps_until(int64_t tokens, int64_t steps) const {
    int64_t low = 0, high = steps;
    while (low < high) {
      const int64_t middle = low + (high - low) / 2;
      if (tokens_before_(middle) < static_cast<double>(tokens))
        low = middle + 1;
      else
        high = middle;
    }
    return low;
  }

  /// The share of the peak that step s of the warmup has: 1 at the last step of the warmup.
  double warmup_share(int64_t s) const {
    if (options_.warmup_tokens == 0)
      return static_cast<double>(s + 1) / static_cast<double>(options_.warmup);
    return std::min(1.0, tokens_before_(s + 1) / static_cast<double>(options_.warmup_tokens));
  }

  ScheduleOptions options_;
  double peak_;
  TokensBefore tokens_before_;
  int64_t warmup_ = 0;
  int64_t decay_ = 0;
  int64_t decay_begin_ = 0;
};

}  // namespace ladder
