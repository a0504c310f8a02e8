// Ranks whose shares have unlike numbers of targets: the sum of their gradients is the gradient of
// the mean over all targets of the batch. No chapter's text leaves targets out, so this is a loop
// of its own over the parts that 07 is made of.
#include "chapters/07_ddp/ddp.h"
#include "common/comm/run_ranks.h"
#include "common/data/text.h"
#include "tests/common/blocks.h"
#include "tests/kernels/testing.h"

namespace ladder::test {
namespace {

constexpr int64_t kB = 8, kT = 6, kVocab = 11;

const GptConfig kConfig{.name = "test",
                        .layers = 2,
                        .heads = 2,
                        .channels = 12,
                        .seq_len = kT,
                        .positions = kT,
                        .vocab = kVocab,
                        .padded_vocab = 13};

/// What a target weighs.
enum class Weight { OfAllTargets, OfOwnTargets, OfEqualShares };

class UnlikeTargets : public ::testing::TestWithParam<DdpMode> {
 protected:
  UnlikeTargets() {
    int32_t* target = targets.data<int32_t>();
    // None in sequences 0 and 1: of 4 ranks the first has nothing to learn. Few in 2 to 5.
    for (int64_t i = 0; i < kB * kT; ++i)
      if (i < 2 * kT || (i < 6 * kT && i % 5 != 0)) target[i] = kIgnore;
  }

  /// Gradients of `tokens` (B,T) with weight 1 / count for each target.
  void gradients(const Ctx& ctx, Arena& arena, const GptTensors& dw, Tensor inp, Tensor out,
                 float weight) const {
    const int64_t n = inp.dim(0), L = kConfig.layers;
    const Activations a = alloc_activations(arena, kConfig, n, {});
    const ActGrads d = alloc_act_grads(arena, kConfig, n);
    const Tensor losses = arena.zeros(Mem::Activation, "losses", Dtype::F32, {n});
    embed_forward(ctx, a.embed, inp, w.embed);
    for (int64_t l = 0; l < L; ++l) forward_block(ctx, w, a, l);
    norm_forward(ctx, a.norm, a.stat, a.stream(L), w.norm);
    head_forward(ctx, a.logits, a.norm, w.head_w);
    head_loss_and_gradient(ctx, losses, a.logits, out, kVocab, weight);
    head_backward_input(ctx, d.branch, a.logits, w.head_w);
    head_backward_weight(ctx, dw.head_w, a.logits, a.norm, Into::Write);
    norm_backward_input(ctx, d.stream, d.branch, a.stream(L), a.stat, w.norm);
    for (int64_t l = L; l-- > 0;) backward_block(ctx, dw, w, a, d, l);
    embed_backward_weight(ctx, dw.embed, d.stream, inp, Into::Write);
  }

  /// The gradient that rank 0 of `ranks` ranks has in the end.
  Tensor reduced(int ranks, Weight weight) {
    const Tensor result = box.zeros(Dtype::F32, {layout.size()});
    run_threads(ranks, [&](Comm& comm) {
      Arena arena;
      Ctx ctx;
      ctx.kernels = &cpu_kernels();
      ctx.threads = 1;
      ctx.scratch =
          arena.alloc(Mem::Workspace, "scratch", Dtype::U8, {1, ctx.kernels->scratch_bytes});
      const DdpOptions options{.mode = GetParam(), .bucket_mb = 0};
      CommStream comm_stream(
          open_comm_stream(arena, ctx, comm, {}, options, Ddp::largest_message(layout, options)));
      Ddp ddp(comm_stream, layout, options);
      const Tensor grads = arena.zeros(Mem::Grad, "grads", Dtype::F32, {layout.size()});

      const int64_t share = kB / ranks, first = comm.rank() * share;
      const Batch own{.tokens = tokens.slice(first, share), .targets = targets.slice(first, share)};
      const int64_t mine = count_targets(own), all = sum_over(comm, mine);
      const int64_t count = weight == Weight::OfAllTargets   ? all
                            : weight == Weight::OfOwnTargets ? std::max<int64_t>(1, mine) * ranks
                                                             : kB * kT;
      gradients(ctx, arena, layout.view(grads), own.tokens, own.targets,
                1.0F / static_cast<float>(count));
      for (int64_t s = layout.sections(); s-- > 0;) ddp.section_done(grads, s);
      ddp.wait(ctx, grads);
      if (comm.rank() == 0) std::memcpy(result.ptr, grads.ptr, static_cast<size_t>(grads.bytes()));
    });
    return result;
  }

  const ParamLayout layout{kConfig};
  Sandbox box{cpu_kernels()};
  const Tensor params = box.random(Dtype::F32, {layout.size()}, -0.3, 0.3);
  const GptTensors w = layout.view(params);
  const Tensor tokens = box.tokens({kB, kT}, kVocab), targets = box.tokens({kB, kT}, kVocab);
};
INSTANTIATE_TEST_SUITE_P(Ddp, UnlikeTargets,
                         ::testing::Values(DdpMode::Naive, DdpMode::Bucketed, DdpMode::Overlapped),
                         [](const auto& mode) { return std::string(to_string(mode.param)); });

TEST_P(UnlikeTargets, WeighTheSameOnEveryRank) {
  const Tensor one = reduced(1, Weight::OfAllTargets);
  EXPECT_TRUE(same_bits(reduced(1, Weight::OfOwnTargets), one));
  for (const int ranks : {2, 4, 8})
    EXPECT_TRUE(same_bits(reduced(ranks, Weight::OfAllTargets), one)) << ranks;
}

TEST_P(UnlikeTargets, NegativeControlMeansOfRanksDiffer) {
  const Tensor one = reduced(1, Weight::OfAllTargets);
  for (const int ranks : {2, 4}) {
    EXPECT_GT(relative_error(reduced(ranks, Weight::OfOwnTargets), one), 0.1) << ranks;
    EXPECT_GT(relative_error(reduced(ranks, Weight::OfEqualShares), one), 0.1) << ranks;
  }
}

}  // namespace
}  // namespace ladder::test
