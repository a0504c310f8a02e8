// A layer of experts on 4 ranks, of which 2 share the experts, has the bits of chapter 21 on one.
// And mistakes that other systems have made: each must be seen, and is far from rounding.
#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "chapters/21_moe/moe.h"
#include "chapters/22_expert_parallel/exchange.h"
#include "chapters/22_expert_parallel/expert_parallel.h"
#include "common/comm/run_ranks.h"
#include "common/model/init.h"
#include "common/model/measure.h"
#include "common/random.h"
#include "common/save/shards.h"
#include "kernels/transfer.h"

namespace ladder::test {
namespace {

enum class Mistake : uint8_t {
  None,
  GradientsTimesEp,
  WrongGroup,          // sums of experts go over those that have other experts
  NormWithoutExperts,  // of a rank that takes experts for somebody else's
  NormOfCopies,        // each copy counts the whole expert
  OfMicroBatch,        // load and capacity are those of a micro-batch, not of a sequence
};

constexpr int kRanks = 4, kEp = 2;
constexpr int64_t kB = 8, kMicro = kB / kRanks;
constexpr RouterLossScale kLosses{.balance = 0.5f, .z = 0.1f};

GptConfig model() {
  GptConfig gpt = preset("moe-nano");
  gpt.layers = 1;
  gpt.channels = 32;
  gpt.experts.chosen = 3;
  return gpt;
}

/// What a layer makes of kB sequences, and all gradients.
struct Made {
  std::vector<float> out = {}, dinp = {}, grads = {};
  double norm = 0;
};

struct Bench {
  Arena arena;
  Ctx ctx;
  Tensor limbs = arena.shared(Mem::Workspace, "limbs", Dtype::I64, {1, kLimbs});

  Bench() {
    ctx.kernels = &cpu_kernels();
    ctx.scratch =
        arena.alloc(Mem::Workspace, "scratch", Dtype::U8, {1, ctx.kernels->scratch_bytes});
  }
  Tensor zeros(Shape shape) { return arena.zeros(Mem::Activation, "x", Dtype::F32, shape); }
  /// Sequences [first, first + count) of one tensor for all of kB.
  Tensor random(const char* key, int64_t first, int64_t count) {
    const GptConfig gpt = model();
    const Tensor x = zeros({count, gpt.seq_len, gpt.channels});
    const Random random(3, key);
    const int64_t skip = first * gpt.seq_len * gpt.channels;
    for (int64_t i = 0; i < x.size(); ++i)
      x.data<float>()[i] =
          static_cast<float>(random.normal_pair(static_cast<uint64_t>(skip + i))[0]);
    return x;
  }
  Tensor weights(const ParamLayout& layout) {
    const Tensor flat = zeros({layout.size()});
    init_params(ctx, flat, layout, layout.config(), 1);
    return flat;
  }
  /// The gradients of a block that has but a router and experts.
  void zero_others(const BlockTensors& g) {
    for (const Tensor& x : {g.norm1.w, g.attn.qkv.w, g.attn.proj_w, g.norm2.w}) zero(ctx, x);
  }
};

std::vector<float> floats(const Tensor& x) { return {x.data<float>(), x.data<float>() + x.size()}; }

Made alone(int64_t capacity) {
  Bench b;
  const GptConfig gpt = model();
  const ParamLayout layout(gpt);
  const GptTensors w = layout.view(b.weights(layout));
  const Tensor flat = b.zeros({layout.size()});
  const ExpertTensors &p = w.blocks[0].experts, g = layout.view(flat).blocks[0].experts;
  const Routers routers(b.arena, gpt, kB, kB, {}, capacity);
  const ExpertLayers experts(b.arena, ExpertSizes(gpt, kB), {});
  const RouterActs r = routers.acts(0);
  const ExpertActs s = experts.acts(0, r.chosen);
  const Tensor inp = b.random("inp", 0, kB), dout = b.random("dout", 0, kB);
  const Tensor out = b.zeros(inp.shape), dinp = b.zeros(inp.shape), more = b.zeros(inp.shape);
  const RouteRule rule = route_rule(gpt.experts);
  router_forward(b.ctx, r, inp, p.router, {}, rule);
  permute_forward(b.ctx, s, inp, capacity);
  experts_forward(b.ctx, s, p);
  unpermute_forward(b.ctx, out, s);
  unpermute_backward(b.ctx, s, dout);
  experts_backward(b.ctx, g, s, inp, p, Into::Write);
  permute_backward(b.ctx, dinp, s);
  router_backward(b.ctx, more, g.router, r, inp, p.router, rule, kLosses, Into::Write);
  residual_backward_input(b.ctx, dinp, more);
  return {floats(out), floats(dinp), floats(flat), grad_norm(b.ctx, flat, layout, b.limbs)};
}

/// As ExpertGrads, but sections of experts go over `group`.
class GradsOver : public ShardedGrads {
 public:
  GradsOver(Arena& arena, const Ctx& ctx, ExpertStreams& streams, Comm& group,
            const ParamLayout& layout, const ParamLayout& shard)
      : ShardedGrads(arena, streams.of(0), layout, shard, {}, 1),
        streams_(streams),
        layout_(layout),
        other_(arena, ctx, group, {}, Reduction::Halving, layout.largest_section(), false) {}

 protected:
  CommStream& stream_of(int64_t s) override {
    return layout_.is_of_experts(s) ? other_ : streams_.of(s);
  }

 private:
  ExpertStreams& streams_;
  const ParamLayout& layout_;
  CommStream other_;
};

/// One rank's part of it, and the gradients that it owns.
Made of_rank(Comm& comm, int64_t capacity, Mistake mistake) {
  Bench b;
  GptConfig gpt = model();
  int64_t micro = kMicro;
  const ExpertRank place{comm.rank() % kEp, kEp};
  const ParamLayout layout(gpt, kRanks, {}, {}, place), shard = layout.shard(comm.rank());
  const GptTensors w = layout.view(b.weights(layout));
  if (mistake == Mistake::OfMicroBatch) {
    gpt.seq_len *= std::exchange(micro, 1);
    capacity *= kMicro;
  }
  const ExchangeShape shape(gpt, micro, kEp, capacity, Dtype::F32);
  const Routers routers(b.arena, gpt, micro * kRanks, micro, {}, capacity);
  const ExpertLayers experts(b.arena, shape.own, {});
  Exchange exchange(b.arena, comm, shape, {});
  const DdpOptions ddp{.mode = DdpMode::Bucketed};
  ExpertStreams streams(b.arena, b.ctx, comm, kEp, {}, ddp, layout);
  std::unique_ptr<ShardedGrads> grads =
      std::make_unique<ExpertGrads>(b.arena, streams, layout, shard, AccumulateOptions{}, 1);
  const std::unique_ptr<Comm> owners = comm.split(comm.rank() / kEp, comm.rank());
  if (mistake == Mistake::WrongGroup)
    grads = std::make_unique<GradsOver>(b.arena, b.ctx, streams, *owners, layout, shard);

  const BlockTensors& p = w.blocks[0];
  const RouterActs r = routers.acts(0);
  const Exchanged x = exchange.acts(0, r.chosen);
  const ExpertActs s = experts.acts(0, x.chosen);
  const RouteRule rule = route_rule(gpt.experts);
  const auto own = [&](const char* key) {
    return b.random(key, comm.rank() * kMicro, kMicro).view({micro, gpt.seq_len, gpt.channels});
  };
  const Tensor inp = own("inp"), dout = own("dout");
  const Tensor out = b.zeros(inp.shape), more = b.zeros(inp.shape), dinp = b.zeros(inp.shape);
  router_forward(b.ctx, r, inp, p.experts.router, {}, rule);
  exchange.exchange_routing(b.ctx, x);
  exchange.to_owners(b.ctx, x, x.inp, inp);
  permute_forward(b.ctx, s, x.inp, shape.most);
  experts_forward(b.ctx, s, p.experts);
  unpermute_forward(b.ctx, x.out, s);
  exchange.to_origins(b.ctx, x, out, x.out);

  grads->begin(0, 1);
  grads->begin_section(b.ctx, layout.expert_section(0));
  const BlockTensors& g = grads->view().blocks[0];
  exchange.to_owners(b.ctx, x, x.dout, dout);
  unpermute_backward(b.ctx, s, x.dout);
  experts_backward(b.ctx, g.experts, s, x.inp, p.experts, Into::Write);
  permute_backward(b.ctx, x.out, s);
  exchange.to_origins(b.ctx, x, r.chosen.dweight, x.chosen.dweight);
  exchange.to_origins(b.ctx, x, dinp, x.out);
  if (mistake == Mistake::GradientsTimesEp)
    for (const Tensor& grad : {g.experts.fc, g.experts.proj_w})
      b.ctx.kernels->scale(b.ctx, grad, kEp);
  grads->end_section(layout.expert_section(0));
  grads->begin_section(b.ctx, layout.block_section(0));
  b.zero_others(g);
  router_backward(b.ctx, more, g.experts.router, r, inp, p.experts.router, rule, kLosses,
                  Into::Write);
  residual_backward_input(b.ctx, dinp, more);
  grads->end_section(layout.block_section(0));
  grads->end();

  Made made{floats(out), floats(dinp)};
  const Shard sum = grads->finish(b.ctx);
  made.grads.resize(static_cast<size_t>(layout.whole().size()));
  for_flat_runs(shard, sum, [&](int64_t begin, Tensor run) {
    std::ranges::copy(floats(run), made.grads.begin() + begin);
  });
  const Tensor of_experts = shard.section_of(sum, layout.expert_section(0));
  if (mistake == Mistake::NormWithoutExperts) zero(b.ctx, of_experts);
  if (mistake == Mistake::NormOfCopies)  // as if each of two had counted both halves
    b.ctx.kernels->scale(b.ctx, of_experts, std::sqrt(2.0f));
  made.norm = grad_norm(b.ctx, sum, shard, b.limbs, &comm);
  return made;
}

Made by_ranks(int64_t capacity, Mistake mistake = Mistake::None) {
  std::vector<Made> ranks(kRanks);
  run_threads(kRanks, [&](Comm& comm) {
    ranks[static_cast<size_t>(comm.rank())] = of_rank(comm, capacity, mistake);
  });
  Made all = ranks[0];
  for (size_t r = 1; r < ranks.size(); ++r) {
    all.out.insert(all.out.end(), ranks[r].out.begin(), ranks[r].out.end());
    all.dinp.insert(all.dinp.end(), ranks[r].dinp.begin(), ranks[r].dinp.end());
    // Each has what it owns, and 0 elsewhere.
    std::ranges::transform(all.grads, ranks[r].grads, all.grads.begin(), std::plus<>());
  }
  return all;
}

/// -0 is not 0.
bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return std::ranges::equal(a, b, [](float x, float y) {
    return std::bit_cast<uint32_t>(x) == std::bit_cast<uint32_t>(y);
  });
}
/// Whether they differ by more than rounding: a hundredth of the largest.
bool far(const std::vector<float>& a, const std::vector<float>& b) {
  float most = 0, difference = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    most = std::max(most, std::abs(a[i]));
    difference = std::max(difference, std::abs(a[i] - b[i]));
  }
  return difference > most / 100;
}

constexpr int64_t kDropless = 0, kDropping = 5;

TEST(LayerOfRanks, HasTheBitsOfOneRank) {
  for (const int64_t capacity : {kDropless, kDropping}) {
    const Made one = alone(capacity), all = by_ranks(capacity);
    EXPECT_TRUE(same_bits(one.out, all.out)) << capacity;
    EXPECT_TRUE(same_bits(one.dinp, all.dinp)) << capacity;
    EXPECT_EQ(one.norm, all.norm) << capacity;
    EXPECT_GT(one.norm, 0);
    // Padding has no sum, so it may be 0 on one side and -0 on the other.
    EXPECT_EQ(one.grads, all.grads) << capacity;
  }
}

TEST(LayerOfRanks, AMistakeIsSeen) {
  const Made one = alone(kDropless);
  for (const Mistake mistake : {Mistake::GradientsTimesEp, Mistake::WrongGroup}) {
    const Made all = by_ranks(kDropless, mistake);
    EXPECT_TRUE(same_bits(one.out, all.out));  // a plausible loss
    EXPECT_TRUE(far(one.grads, all.grads)) << static_cast<int>(mistake);
    EXPECT_NE(one.norm, all.norm);
  }
  for (const Mistake mistake : {Mistake::NormWithoutExperts, Mistake::NormOfCopies}) {
    const Made all = by_ranks(kDropless, mistake);
    EXPECT_EQ(one.grads, all.grads);
    EXPECT_GT(std::abs(one.norm - all.norm), one.norm / 100) << static_cast<int>(mistake);
  }
  // The loss for uneven load has a gradient that reaches the router alone; what is dropped is seen
  // at once.
  EXPECT_TRUE(far(one.dinp, by_ranks(kDropless, Mistake::OfMicroBatch).dinp));
  EXPECT_TRUE(same_bits(one.out, by_ranks(kDropless, Mistake::OfMicroBatch).out));
  EXPECT_TRUE(far(alone(kDropping).out, by_ranks(kDropping, Mistake::OfMicroBatch).out));
}

}  // namespace
}  // namespace ladder::test
