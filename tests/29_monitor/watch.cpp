// 29_monitor: what a run sees of its tensors changes nothing, and is the same on every number of
// ranks. (events.cpp compares all that it sees, byte for byte.)
#include "chapters/29_monitor/watch.h"

#include "common/comm/self_comm.h"
#include "tests/common/programs.h"
#include "tests/kernels/testing.h"

namespace ladder::test {
namespace {

/// Buffers of a small model, and what Watch says of a step that halves all weights.
class WatchedStep : public ::testing::Test {
 protected:
  WatchedStep() { ctx.kernels = &cpu_kernels(); }
  Tensor numbers(const char* name) {
    const Tensor all = arena.zeros(Mem::Grad, name, Dtype::F32, {params.size()});
    for (const ParamSpec& spec : params.specs()) {
      const Tensor x = flat(params.tensor(all, spec)).first(spec.live());
      for (int64_t i = 0; i < x.size(); ++i)
        x.data<float>()[i] = static_cast<float>(1 + i % 7) * (i % 2 == 0 ? 1.0f : -0.5f);
    }
    return all;
  }
  const GptConfig config{.name = "test",
                         .layers = 2,
                         .heads = 2,
                         .channels = 16,
                         .seq_len = 4,
                         .positions = 4,
                         .vocab = 11,
                         .padded_vocab = 13};
  const ParamLayout params{config};
  Arena arena;
  Ctx ctx;
  SelfComm comm;
};

TEST_F(WatchedStep, HasTheNumbersOfEachTensor) {
  Watch watch(arena, params, params.shard(0), Dtype::F32, 64, {.every = 5});
  const Tensor grads = numbers("grads"), weights = numbers("weights");
  const Tensor first = flat(params.tensor(grads, params.specs()[0]));
  first.data<float>()[3] = -9;
  first.data<float>()[4] = 0;
  for (const int64_t step : {4, 5}) {
    watch.begin(ctx, step);
    watch.before(ctx, grads, weights);
    ctx.kernels->scale(ctx, weights, 0.5f);
    watch.after(ctx, weights);
    watch.finish(ctx, comm, norm(grads));
    EXPECT_EQ(watch.seen() != nullptr, step == 5);
    EXPECT_EQ(watch.scalars().empty(), step != 5);
    if (step == 4) ctx.kernels->scale(ctx, weights, 2.0f);
  }
  const TensorSums& seen = *watch.seen();
  for (int64_t i = 0; i < seen.tensors(); ++i) {
    const ParamSpec& spec = params.specs()[static_cast<size_t>(i)];
    const TensorFacts facts = seen.facts(i);
    const auto live = [&](Tensor all) { return flat(params.tensor(all, spec)).first(spec.live()); };
    EXPECT_EQ(facts.name, spec.name);
    EXPECT_DOUBLE_EQ(facts.gradient, norm(live(grads)));
    EXPECT_DOUBLE_EQ(facts.weight, 2 * norm(live(weights)));
    EXPECT_DOUBLE_EQ(facts.update, norm(live(weights)));
    EXPECT_EQ(facts.largest, i == 0 ? 9 : 7 < spec.live() ? 7 : facts.largest) << spec.name;
    EXPECT_DOUBLE_EQ(facts.zeros, i == 0 ? 1.0 / static_cast<double>(spec.live()) : 0);
  }
  EXPECT_EQ(update_ratio(seen.whole(Of::Update), seen.whole(Of::Weight)), 0.5);
}

TEST_F(WatchedStep, ASkippedStepHasNoUpdate) {
  Watch watch(arena, params, params.shard(0), Dtype::F32, 64, {.every = 1});
  const Tensor grads = numbers("grads"), weights = numbers("weights");
  watch.begin(ctx, 0);
  watch.before(ctx, grads, weights);
  watch.finish(ctx, comm, norm(grads));
  EXPECT_EQ(watch.seen()->whole(Of::Update), 0);
}

using WatchRuns = Programs;

// The alarm of a rank stands, but a checkpoint may go on with other ranks.
TEST_F(WatchRuns, CheckpointsKnowNoRanks) {
  const auto alarms =
      report("29_monitor",
             "--batch 8 --layers 2 --ranks 2 --plant rank:0 --alarms --watch-every 1 "
             "--save saved")["extra"]["alarms"];
  ASSERT_EQ(alarms.size(), 1U) << alarms;
  EXPECT_EQ(alarms[0]["kind"], "rank");
  const auto state = nlohmann::json::parse(read("saved/current/checkpoint.json"))["state"];
  EXPECT_TRUE(state["detectors"]["standing"].empty()) << state;
}

}  // namespace
}  // namespace ladder::test
