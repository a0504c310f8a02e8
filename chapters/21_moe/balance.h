// --balance-loss, --z-loss, --bias-rate: keep a router from giving all tokens to a few experts.
//
//   --balance-loss a   loss += a / B sum_b sum_e f_e P_e. In sequence b f_e = load_e E / (k T) is
//                      the load of expert e divided by the mean load, and P_e is the mean over
//                      tokens of its score divided by the sum of the token's scores. Only P has a
//                      gradient (arXiv 2101.03961)
//   --z-loss a         loss += a / B sum_b mean_t (log sum_e exp logit_e)^2: logits stay small
//                      (arXiv 2202.08906)
//   --bias-rate u      after a step bias_e += u sign(mean load - load_e), with loads of the whole
//                      batch. The bias is added to scores only where experts are chosen, so it has
//                      no gradient (arXiv 2408.15664)
//
// The losses are per sequence, and the load of a batch is a sum of integers. So none of them
// depends on how a batch is cut into micro-batches. The losses of all blocks are added up. The loss
// that a run reports does not include them.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <vector>

#include <nlohmann/json.hpp>

#include "chapters/21_moe/experts.h"
#include "chapters/21_moe/moe.h"
#include "common/error.h"
#include "common/run/command_line.h"
#include "common/run/log.h"
#include "kernels/arena.h"

namespace ladder {

struct BalanceOptions {
  float loss = 0, z_loss = 0, bias_rate = 0;

  void add_to(CommandLine& line) {
    line.group("21_moe");
    line.add("--balance-loss", loss, "factor of the loss for uneven load; 0: off");
    line.add("--z-loss", z_loss, "factor of the loss for large logits of routers; 0: off");
    line.add("--bias-rate", bias_rate,
             "how far a step moves the bias of an expert whose load is uneven; 0: off");
  }

  /// @throws UserError
  void check() const {
    check("--balance-loss", loss);
    check("--z-loss", z_loss);
    check("--bias-rate", bias_rate);
  }

 private:
  static void check(const char* flag, float value) {
    if (!(value >= 0 && std::isfinite(value)))
      throw UserError("{} must be at least 0, not {}", flag, value);
  }
};

/// The biases of all experts, and the loads that they had.
class Balance {
 public:
  /// @throws UserError if there is nothing to balance
  Balance(Arena& arena, const GptConfig& config, const BalanceOptions& options)
      : config_(config), options_(options) {
    const int64_t E = config.experts.count;
    if (E == 0 && (options.loss > 0 || options.z_loss > 0 || options.bias_rate > 0))
      throw UserError(
          "--balance-loss, --z-loss and --bias-rate are for experts, and the model has none; legal "
          "are --experts, and a model that has some: moe-nano, moe-tiny");
    if (E == 0) return;
    bias_ = arena.shared(Mem::Optim, "router_bias", Dtype::F32, {config.layers, E});
    std::fill_n(bias_.data<float>(), bias_.size(), 0.0f);
  }
  /// Bytes of Optim.
  static int64_t bytes(const GptConfig& config) { return 4 * config.layers * config.experts.count; }

  /// The biases (E) of block l.
  Tensor bias(size_t l) const {
    return bias_.slice(static_cast<int64_t>(l), 1).view({config_.experts.count});
  }

  /// @param scale the loss scale S
  RouterLossScale scale(float scale, int64_t batch) const {
    const float each = scale / static_cast<float>(batch);
    return {.balance = options_.loss * each, .z = options_.z_loss * each};
  }

  /// Reads what the routers of a step have counted.
  void count(const Routers& routers) {
    if (config_.experts.count == 0) return;
    std::vector<Load>& step = loads_.emplace_back();
    Measured sum;
    for (int64_t l = 0; l < config_.layers; ++l) {
      const Load& load = step.emplace_back(load_of(routers.load(l)));
      const auto [least, most] = std::minmax_element(load.begin(), load.end());
      sum.violation += static_cast<double>(*most) / mean() - 1;
      sum.least += static_cast<double>(*least) / mean();
      sum.dropped += dropped(routers.load(l), routers.capacity());
      add_losses(sum, routers.losses(l));
    }
    measured_.push_back(sum);
  }

  /// Once the weights are updated: moves each bias by bias_rate, up or down, or not at all. The
  /// load is that which count() has read last.
  void update() const {
    if (options_.bias_rate == 0) return;
    const std::vector<Load>& step = loads_.back();
    for (size_t l = 0; l < step.size(); ++l)
      for (size_t e = 0; e < step[l].size(); ++e) {
        const double missing = mean() - static_cast<double>(step[l][e]);
        const float sign = missing > 0 ? 1.0f : missing < 0 ? -1.0f : 0.0f;
        bias(l).data<float>()[e] += options_.bias_rate * sign;
      }
  }

  nlohmann::json state() const {
    const float* bias = bias_.data<float>();
    return std::vector<float>(bias, bias + (bias_ ? bias_.size() : 0));
  }
  void set_state(const nlohmann::json& state) {
    const auto bias = state.get<std::vector<float>>();
    if (std::ssize(bias) != (bias_ ? bias_.size() : 0))
      throw UserError("{} biases of routers, not {}", bias.size(), bias_.size());
    std::copy(bias.begin(), bias.end(), bias_.data<float>());
  }

  /// Of each step the means over blocks, and the load of each expert.
  void report(Log& log, int64_t weights) const {
    if (config_.experts.count == 0) return;
    nlohmann::json steps;
    for (const Measured& sum : measured_) {
      const auto add = [&](const char* name, double value) {
        steps[name].push_back(value / static_cast<double>(config_.layers));
      };
      add("max_violation", sum.violation);
      add("least_load", sum.least);
      add("dropped", sum.dropped);
      add("balance_loss", sum.balance);
      add("z_loss", sum.z);
    }
    if (!loads_.empty()) steps["load"] = loads_;
    log.extra()["experts"] = {
        {"weights", weights},
        {"weights_of_a_token", weights - config_.layers * config_.idle_matrices()},
        {"load", loads_.empty() ? std::vector<Load>{} : loads_.back()},
        {"steps", steps}};
  }

 private:
  using Load = std::vector<int64_t>;  ///< tokens of a step that chose each expert

  /// Of one step, summed over blocks.
  struct Measured {
    double violation = 0;  ///< MaxVio: the largest load divided by the mean, minus 1
    double least = 0;      ///< the smallest load divided by the mean
    double dropped = 0;    ///< the share of choices that a full expert dropped
    double balance = 0, z = 0;
  };

  static Load load_of(Tensor load) {
    const int64_t B = load.dim(0), E = load.dim(1);
    Load sum(static_cast<size_t>(E));
    for (int64_t i = 0; i < B * E; ++i) sum[static_cast<size_t>(i % E)] += load.data<int32_t>()[i];
    return sum;
  }
  static double dropped(Tensor load, int64_t capacity) {
    if (capacity == 0) return 0;
    int64_t all = 0, over = 0;
    for (int64_t i = 0; i < load.size(); ++i) {
      const int64_t chosen = load.data<int32_t>()[i];
      all += chosen;
      over += std::max<int64_t>(0, chosen - capacity);
    }
    return static_cast<double>(over) / static_cast<double>(all);
  }
  static void add_losses(Measured& sum, Tensor losses) {
    const int64_t micros = losses.dim(0), MBS = losses.dim(1) / 2;
    const auto mean = [&](int64_t which) {
      double of_all = 0;
      for (int64_t k = 0; k < micros; ++k)
        for (int64_t b = 0; b < MBS; ++b) of_all += losses.data<float>()[(2 * k + which) * MBS + b];
      return of_all / static_cast<double>(micros * MBS);
    };
    sum.balance += mean(0);
    sum.z += mean(1);
  }
  /// The load that each expert would have if all loads were equal.
  double mean() const {
    const Load& load = loads_.back().back();
    const auto chosen = std::accumulate(load.begin(), load.end(), int64_t{0});
    return static_cast<double>(chosen) / static_cast<double>(config_.experts.count);
  }

  GptConfig config_;
  BalanceOptions options_;
  Tensor bias_;                           ///< (L,E), zero at first
  std::vector<std::vector<Load>> loads_;  ///< [step][block]
  std::vector<Measured> measured_;
};

}  // namespace ladder
