// Chapter 20's program with a mistake in what a rank does with its own tokens. No lost message is
// like one of these, so --fault cannot plant them:
//
//   planted_20_context_parallel MISTAKE PROGRAM FLAGS...
//
// A test gives it as the launcher of PROGRAM, the sound one, which is not run.
#include <array>
#include <cstdint>

#include "chapters/20_context_parallel/context_parallel.h"

namespace ladder::planted {

enum class Mistake : uint8_t { None, Positions, Targets, Loss };
constexpr auto names_of(Mistake) { return std::array{"none", "positions", "targets", "loss"}; }

Mistake mistake = Mistake::None;

class ContextParallel : public ladder::ContextParallel {
 public:
  using ladder::ContextParallel::ContextParallel;

  /// Targets: each rank shifts its own tokens. The last token of the early run is told to expect
  /// the first of the late run, and the last of the late run has no target.
  void take(const Batch& own) const {
    ladder::ContextParallel::take(own);
    if (mistake != Mistake::Targets) return;
    for (int64_t b = 0; b < own.tokens.dim(0); ++b) {
      const int32_t* tokens = own.tokens.slice(b, 1).data<int32_t>();
      int32_t* targets = own.targets.slice(b, 1).data<int32_t>();
      const int64_t t = own.tokens.dim(1);
      for (int64_t i = 0; i + 1 < t; ++i) targets[i] = tokens[i + 1];
      targets[t - 1] = kIgnore;
    }
  }
  /// Positions: from 0 on every rank.
  void embed_forward(const Ctx& ctx, Tensor out, Tensor tokens, const EmbedTensors& p) const {
    if (mistake == Mistake::Positions) return ladder::embed_forward(ctx, out, tokens, p);
    ladder::ContextParallel::embed_forward(ctx, out, tokens, p);
  }
  void embed_backward_weight(const Ctx& ctx, const EmbedTensors& g, Tensor dout, Tensor tokens,
                             Into into) const {
    if (mistake == Mistake::Positions)
      return ladder::embed_backward_weight(ctx, g, dout, tokens, into);
    ladder::ContextParallel::embed_backward_weight(ctx, g, dout, tokens, into);
  }
  /// Loss: every rank counts the sum over ranks as its own part, and they are added once more.
  void sum_losses(Tensor losses) {
    ladder::ContextParallel::sum_losses(losses);
    if (mistake == Mistake::Loss) ladder::ContextParallel::sum_losses(losses);
  }
};

/// Positions: angles from 0 on every rank.
Activations alloc_local_activations(Arena& arena, const GptConfig& own, const LocalTokens& tokens,
                                    int64_t micro, const ActivationPlan& plan) {
  if (mistake == Mistake::Positions) return alloc_activations(arena, own, micro, plan);
  return ladder::alloc_local_activations(arena, own, tokens, micro, plan);
}

}  // namespace ladder::planted

// The program takes these in the place of the sound ones. Its main() has another name here.
#define ContextParallel planted::ContextParallel
#define alloc_local_activations planted::alloc_local_activations
#define main chapter_main
#include "chapters/20_context_parallel/main.cpp"
#undef main

int main(int argc, char** argv) {
  using ladder::planted::Mistake;
  ladder::planted::mistake = ladder::named<Mistake>(argv[1]).value();
  return chapter_main(argc - 2, argv + 2);
}
