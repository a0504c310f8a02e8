// A model that is only read: weights, and the biases of its routers.
#pragma once

#include <string>

#include "chapters/05_mixed_precision/precision.h"
#include "chapters/21_moe/balance.h"
#include "common/save/checkpoint.h"

namespace ladder {

struct OpenModel {
  const GptConfig config;
  ParamLayout layout{config};
  Weights weights;
  GptTensors w = layout.view(weights.compute);
  Balance balance;

  OpenModel(Arena& arena, const GptConfig& config_, const PrecisionOptions& precision)
      : config(config_),
        weights(arena, ParamLayout(config_).size(), precision),
        balance(arena, config_, {}) {}
  static void add_bytes(MemoryBytes& bytes, const GptConfig& config,
                        const PrecisionOptions& precision) {
    const int64_t P = ParamLayout(config).size();
    bytes[Mem::Param] += Weights::param_bytes(P, precision);
    bytes[Mem::Master] += Weights::master_bytes(P, precision);
    bytes[Mem::Optim] += Balance::bytes(config);
  }

  /// @throws UserError
  void load(const Ctx& ctx, const std::string& path) {
    load_parameters(ctx, path,
                    {.gpt = config,
                     .layout = layout,
                     .params = weights.master,
                     .optim = {},
                     .others{named_state("router_bias", balance)}});
    weights.refresh(ctx);
  }
};

}  // namespace ladder
