// --experts, --experts-per-token, --shared-experts, --router, --no-renormalize, --capacity: the
// experts of a block.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>

#include "common/error.h"
#include "common/model/config.h"
#include "common/names.h"
#include "common/run/command_line.h"

namespace ladder {

constexpr auto names_of(Router) { return std::array{"softmax", "sigmoid"}; }

struct ExpertOptions {
  std::optional<int64_t> experts, per_token, shared;  ///< not given: as in the model
  std::string router;                                 ///< empty: as in the model
  bool no_renormalize = false;
  double capacity = 0;  ///< a factor; 0: no token is dropped

  void add_to(CommandLine& line) {
    const FlagRules of_model{.shown_default = "the model's"};
    line.group("21_moe");
    line.add("--experts", experts, "experts of a block, each an MLP of --hidden channels",
             of_model);
    line.add("--experts-per-token", per_token, "experts that a token takes", of_model);
    line.add("--shared-experts", shared, "further experts, which every token takes", of_model);
    line.add(
        "--router", router, "what scores experts: softmax, or a sigmoid for each",
        {.legal = {kNames<Router>.begin(), kNames<Router>.end()}, .shown_default = "the model's"});
    line.add("--no-renormalize", no_renormalize,
             "scores are weights as they are, not divided by their sum over a token's experts");
    line.add("--capacity", capacity,
             "an expert takes so many times its even share of a sequence, and drops later tokens; "
             "0: it drops none");
  }

  /// @throws UserError
  void check() const {
    if (!(capacity >= 0 && std::isfinite(capacity) && capacity <= kMaxExperts))
      throw UserError("--capacity must be from 0 to {}, not {}", kMaxExperts, capacity);
  }

  /// `config` with these experts. @throws UserError that names what is legal
  GptConfig gpt(GptConfig config) const {
    Experts& e = config.experts;
    if (experts) require_range("--experts", *experts, 1, kMaxExperts);
    e.count = experts.value_or(e.count);
    if (e.count == 0) return without_experts(config);
    if (e.chosen == 0) e.chosen = 1;
    if (per_token) e.chosen = *per_token;
    if (shared) require_range("--shared-experts", *shared, 0, kMaxExperts);
    e.shared = shared.value_or(e.shared);
    e.router = named<Router>(router).value_or(e.router);
    if (no_renormalize) e.renormalize = false;
    config.check();
    // x / x is 1, whatever the router says. Megatron-LM refuses it, too. Switch does not divide for
    // k = 1. The Mixtral of Hugging Face divides, and its router gets no gradient.
    if (e.chosen == 1 && e.renormalize)
      throw UserError(
          "--experts-per-token 1 needs --no-renormalize: the only score of a token, divided by "
          "itself, is always 1, and gives the router no gradient; legal are also 2 to {}",
          e.count);
    return config;
  }

  /// How many tokens of a sequence an expert takes; 0: all that choose it.
  int64_t tokens_of_expert(const GptConfig& config) const {
    const auto even = static_cast<double>(config.experts.chosen * config.seq_len) /
                      static_cast<double>(std::max<int64_t>(1, config.experts.count));
    return static_cast<int64_t>(std::ceil(capacity * even));
  }

 private:
  static constexpr int64_t kMaxExperts = 1024;

  GptConfig without_experts(const GptConfig& config) const {
    if (per_token || shared || !router.empty() || no_renormalize || capacity > 0)
      throw UserError(
          "--model {} has no experts; legal are --experts, and a model that has some: moe-nano, "
          "moe-tiny",
          config.name);
    return config;
  }
};

}  // namespace ladder
