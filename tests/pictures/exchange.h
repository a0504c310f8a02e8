// What the picture of chapter 22 shows, as its own functions compute it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include <nlohmann/json.hpp>

#include "chapters/21_moe/moe.h"
#include "chapters/22_expert_parallel/exchange.h"
#include "chapters/22_expert_parallel/exchange_memory.h"
#include "common/comm/run_ranks.h"
#include "common/model/config.h"
#include "kernels/arena.h"
#include "kernels/kernels.h"

namespace ladder {

/// Two ranks with a sequence of four tokens and two of four experts each; a token takes two.
/// [rank]: "chosen" of its tokens; "arrived", the tokens that it has experts for, of all eight;
/// "rows" of each of its experts, by token. "sums" of those that arrived, where expert e gives
/// 10^e, so that the digits say whose outputs are in a sum; "joined", the same of its own tokens.
inline nlohmann::json exchanged_tokens() {
  constexpr int64_t kRanks = 2, T = 4, E = 4, k = 2, kOwn = E / kRanks;
  constexpr int32_t kChosen[kRanks * T][k] = {{0, 1}, {0, 2}, {2, 3}, {1, 3},
                                              {0, 1}, {2, 3}, {0, 3}, {1, 2}};
  GptConfig gpt = preset("moe-nano");
  gpt.layers = gpt.channels = gpt.hidden = 1;
  gpt.seq_len = T;
  gpt.experts = {.count = E, .chosen = k};
  std::vector<nlohmann::json> ranks(kRanks);
  run_threads(kRanks, [&](Comm& comm) {
    const int rank = comm.rank();
    Arena arena;
    Ctx ctx;
    ctx.kernels = &ref_kernels();
    const ActivationPlan plan;
    const ExchangeShape shape(gpt, /*micro=*/1, kRanks, /*capacity=*/0, plan.dtype);
    const Routers routers(arena, gpt, /*batch=*/1, /*micro=*/1, plan, /*capacity=*/0);
    const ExpertLayers experts(arena, shape.own, plan);
    Exchange exchange(arena, comm, shape, plan);
    const Choices chosen = routers.acts(0).chosen;
    const Exchanged x = exchange.acts(0, chosen);
    const ExpertActs s = experts.acts(0, x.chosen);
    nlohmann::json& out = ranks[static_cast<size_t>(rank)];
    const Tensor inp = arena.alloc(Mem::Workspace, "inp", Dtype::F32, {1, T, 1});
    for (int64_t t = 0; t < T; ++t) {
      inp.data<float>()[t] = static_cast<float>(rank * T + t);
      std::copy_n(kChosen[rank * T + t], k, chosen.expert.data<int32_t>() + t * k);
      out["chosen"].push_back(kChosen[rank * T + t]);
    }
    std::fill_n(chosen.weight.data<float>(), T * k, 1.0f);
    exchange.choose(ctx, x);
    exchange.to_owners(ctx, x, x.inp, inp);
    dispatch_forward(ctx, s, x.inp, T);
    const int32_t* begin = s.rows.offsets.data<int32_t>();
    float tens = rank == 0 ? 1 : 100;
    for (int64_t e = 0; e < kOwn; ++e, tens *= 10) {
      std::vector<int64_t> tokens;
      for (int64_t row = begin[e]; row < begin[e + 1]; ++row) {
        tokens.push_back(static_cast<int64_t>(s.inp.data<float>()[row]));
        s.out.data<float>()[row] = tens;
      }
      out["rows"].push_back(tokens);
    }
    combine_forward(ctx, x.out, s);
    for (int64_t t = 0; t < kRanks * T; ++t) {
      if (x.arrived.peer.data<int32_t>()[t] == kElsewhere) continue;
      out["arrived"].push_back(t);
      out["sums"].push_back(x.out.data<float>()[t]);
    }
    const Tensor joined = arena.alloc(Mem::Workspace, "joined", Dtype::F32, {1, T, 1});
    exchange.to_origins(ctx, x, joined, x.out);
    for (int64_t t = 0; t < T; ++t) out["joined"].push_back(joined.data<float>()[t]);
  });
  return ranks;
}

}  // namespace ladder
