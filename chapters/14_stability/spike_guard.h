// Spike guard: skips a batch that would throw the model off.
//
// A step is a spike if its loss or gradient norm is more than K standard deviations above the mean
// of the last 64 good steps. A spike makes no update, but data and schedule go on.
// (PaLM, arXiv 2204.02311, section 5.1, went back to a checkpoint before the spike and left out
// some 200 to 500 batches.) The eighth spike in a row is believed: the level has changed for good.
// That step updates the weights, and the window of good steps starts anew.
#pragma once

#include <cmath>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>

#include <nlohmann/json.hpp>

#include "chapters/04_clipping/clip.h"
#include "common/data/text.h"
#include "common/error.h"
#include "common/random.h"
#include "common/run/command_line.h"
#include "common/save/manifest.h"

namespace ladder {

struct SpikeGuardOptions {
  double deviations = 0;
  std::optional<int64_t> bad_batch = std::nullopt;

  void add_to(CommandLine& line) {
    line.group("14_stability");
    line.add("--spike-guard", deviations,
             "skip a batch this many standard deviations above the last 64; 0: off");
    line.add("--bad-batch", bad_batch, "an experiment: at this step train on random bytes");
  }

  /// @throws UserError
  void check() const {
    if (!(deviations >= 0 && std::isfinite(deviations)))
      throw UserError("--spike-guard must be at least 0, not {}", deviations);
    if (bad_batch && *bad_batch < 0)
      throw UserError("--bad-batch must be at least 0, not {}", *bad_batch);
  }

  /// In step --bad-batch, replaces tokens and targets by random bytes, independent of each
  /// other.
  /// @param first index of the first sequence here in the batch of all ranks
  void inject(const Batch& batch, uint64_t seed, int64_t step, int64_t first = 0) const {
    if (step != bad_batch) return;
    const Random random(seed, "bad batch");
    for (int64_t i = 0; i < batch.tokens.size(); ++i) {
      const auto [token, target] =
          random.bits(static_cast<uint64_t>(first * batch.tokens.dim(1) + i));
      batch.tokens.data<int32_t>()[i] = static_cast<int32_t>(token % 256);
      batch.targets.data<int32_t>()[i] = static_cast<int32_t>(target % 256);
    }
  }
};

class SpikeGuard {
 public:
  explicit SpikeGuard(const SpikeGuardOptions& options) : deviations_(options.deviations) {}

  /// Why this step must be skipped. Empty: the step is good, and enters the window.
  std::string judge(double loss, double norm) {
    std::string reason = not_finite(loss, norm);
    if (!reason.empty() || deviations_ == 0) return reason;
    reason = spike("loss", loss, losses_);
    if (reason.empty()) reason = spike("gradient norm", norm, norms_);
    if (!reason.empty() && ++in_a_row_ < kPatience) return reason;
    if (!reason.empty()) {
      losses_.clear();
      norms_.clear();
    }
    in_a_row_ = 0;
    remember(losses_, loss);
    remember(norms_, norm);
    return "";
  }

  /// What the next step needs from a checkpoint.
  nlohmann::json state() const {
    return {{"losses", losses_}, {"norms", norms_}, {"in_a_row", in_a_row_}};
  }
  void set_state(const nlohmann::json& state) {
    losses_ = state.at("losses").get<std::deque<double>>();
    norms_ = state.at("norms").get<std::deque<double>>();
    in_a_row_ = count_in(state.at("in_a_row"));
    if (losses_.size() > kWindow || norms_.size() != losses_.size())
      throw UserError("windows of {} losses and {} norms", losses_.size(), norms_.size());
  }

 private:
  static constexpr size_t kWindow = 64;
  static constexpr size_t kLeast = 16;  // a shorter window finds no spike
  static constexpr int kPatience = 8;

  std::string spike(const char* what, double x, const std::deque<double>& window) const {
    if (window.size() < kLeast) return "";
    const auto n = static_cast<double>(window.size());
    double mean = 0, variance = 0;
    for (double y : window) mean += y / n;
    for (double y : window) variance += (y - mean) * (y - mean) / n;
    const double limit = mean + deviations_ * std::sqrt(variance);
    if (x <= limit) return "";
    return fmt::format("{} {:.3f} is above {:.3f} ({:.3f} and {} deviations)", what, x, limit, mean,
                       deviations_);
  }

  static void remember(std::deque<double>& window, double x) {
    window.push_back(x);
    if (window.size() > kWindow) window.pop_front();
  }

  double deviations_;
  std::deque<double> losses_, norms_;
  int64_t in_a_row_ = 0;
};

}  // namespace ladder
