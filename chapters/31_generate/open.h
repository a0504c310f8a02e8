// A model that is only read; and with a cache and the decoder that reads both, one that writes
// text.
#pragma once

#include <optional>
#include <string>

#include "chapters/05_mixed_precision/precision.h"
#include "chapters/21_moe/balance.h"
#include "chapters/31_generate/batch.h"
#include "chapters/31_generate/cache.h"
#include "chapters/31_generate/decode.h"
#include "common/save/checkpoint.h"

namespace ladder {

struct OpenModel {
  const GptConfig config;
  ParamLayout layout{config};
  Weights weights;
  GptTensors w = layout.view(weights.compute);
  Balance balance;  ///< biases of routers

  OpenModel(Arena& arena, const GptConfig& config_, const PrecisionOptions& precision)
      : config(config_), weights(arena, layout.size(), precision), balance(arena, config, {}) {}
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
                    {.layout = layout,
                     .params = weights.master,
                     .optim = {},
                     .others{named_state("router_bias", balance)}});
    weights.refresh(ctx);
  }
};

struct Generator : OpenModel {
  std::optional<KvCache> cache;
  Decoder decoder;

  Generator(Arena& arena, const GptConfig& config_, const PrecisionOptions& precision,
            const BatchSize& batch, PassSize pass)
      : OpenModel(arena, config_, precision),
        cache(batch.whole ? std::nullopt
                          : std::optional<KvCache>(std::in_place, arena, config, batch.places,
                                                   batch.window, precision.dtype())),
        decoder(arena, config, w, balance, cache ? &*cache : nullptr, pass, precision.dtype()) {}
  static void add_bytes(MemoryBytes& bytes, const GptConfig& config,
                        const PrecisionOptions& precision, const BatchSize& batch, PassSize pass) {
    const Dtype dtype = precision.dtype();
    OpenModel::add_bytes(bytes, config, precision);
    if (!batch.whole)
      bytes[Mem::Activation] += KvCache::bytes(config, batch.places, batch.window, dtype);
    Decoder::add_bytes(bytes, config, pass, dtype, !batch.whole);
  }
};

}  // namespace ladder
