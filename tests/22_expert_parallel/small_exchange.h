// The smallest exchange, for a test and for a picture: two ranks with a sequence of four tokens and
// two of four experts each. A token takes two experts, and all vectors have one element.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <span>

#include "chapters/21_moe/moe.h"
#include "chapters/22_expert_parallel/exchange.h"
#include "chapters/22_expert_parallel/exchange_memory.h"
#include "common/comm/comm.h"
#include "common/model/config.h"
#include "kernels/arena.h"
#include "kernels/kernels.h"

namespace ladder {

/// What one of the ranks does. Its experts write their outputs into s.out, between the constructor
/// and join().
struct SmallExchange {
  static constexpr int64_t kRanks = 2, T = 4, E = 4, k = 2;

  Arena arena;
  Ctx ctx;
  const ActivationPlan plan;
  const GptConfig gpt = config();
  const ExchangeShape shape{gpt, /*micro=*/1, kRanks, /*capacity=*/0, plan.dtype};
  const Routers routers{arena, gpt, /*batch=*/1, /*micro=*/1, plan, /*capacity=*/0};
  const ExpertLayers experts{arena, shape.own, plan};
  Exchange exchange;
  const Exchanged x;
  const ExpertActs s;

  /// Sends own tokens, which are `first`, `first` + 1, ..., to the owners of their experts.
  /// @param chosen (T,k): the experts of own tokens
  SmallExchange(Comm& comm, std::span<const int32_t> chosen, float first)
      : exchange(arena, comm, shape, plan),
        x(exchange.acts(0, routers.acts(0).chosen)),
        s(experts.acts(0, x.chosen)) {
    ctx.kernels = &ref_kernels();
    const Tensor inp = arena.alloc(Mem::Workspace, "inp", Dtype::F32, {1, T, 1});
    std::iota(inp.data<float>(), inp.data<float>() + T, first);
    std::ranges::copy(chosen, x.own.expert.data<int32_t>());
    std::fill_n(x.own.weight.data<float>(), T * k, 1.0f);
    exchange.exchange_routing(ctx, x);
    exchange.to_owners(ctx, x, x.inp, inp);
    permute_forward(ctx, s, x.inp, T);
  }
  /// Adds outputs by token into x.out, and returns the sums of own tokens (1,T,1).
  Tensor join() {
    unpermute_forward(ctx, x.out, s);
    const Tensor out = arena.alloc(Mem::Workspace, "out", Dtype::F32, {1, T, 1});
    exchange.to_origins(ctx, x, out, x.out);
    return out;
  }
  /// Whether token t of all ranks has come here.
  bool came(int64_t t) const { return x.arrived.peer.data<int32_t>()[t] != kElsewhere; }

 private:
  static GptConfig config() {
    GptConfig small = preset("moe-nano");
    small.layers = small.channels = small.hidden = 1;
    small.seq_len = T;
    small.experts = {.count = E, .chosen = k};
    return small;
  }
};

}  // namespace ladder
