// Chapter 33's program with a sum over the wrong group. Each row of the README's table has its
// mistake here:
//
//   planted_33_mesh MISTAKE PROGRAM FLAGS...
//
// A test gives it as the launcher of PROGRAM, the sound one, which is not run.
#include <array>
#include <cstdint>
#include <memory>

#include "chapters/11_tensor_parallel/tensor_parallel.h"
#include "chapters/20_context_parallel/context_parallel.h"
#include "chapters/33_mesh/mesh_groups.h"
#include "common/model/measure.h"

namespace ladder::planted {

enum class Mistake : uint8_t {
  None,
  Replicas,   ///< replicas keep the sums of their own shards
  Mean,       ///< replicas take the mean
  Norms,      ///< tensor ranks sum a norm over their own tokens alone
  Sequences,  ///< a rank's sequences are neighbors, as in chapter 13
  Loss,       ///< context ranks add their sum once more
  Targets,    ///< a target weighs as if this rank had all
  AllRanks,   ///< the norm counts replicas
  OneStage,   ///< the norm is that of a stage's part of a layer
  Copies      ///< the norm counts what all tensor ranks have
};
constexpr auto names_of(Mistake) {
  return std::array{"none", "replicas", "mean",      "norms",     "sequences",
                    "loss", "targets",  "all_ranks", "one_stage", "copies"};
}

Mistake mistake = Mistake::None;

struct MeshGroups : ladder::MeshGroups {
  MeshGroups(Comm& world, const MeshShape& mesh) : ladder::MeshGroups(world, mesh) {
    if (mistake == Mistake::AllRanks)
      model = split_along(world, mesh, {kAxes.begin(), kAxes.end()});
    if (mistake == Mistake::OneStage) model = split_along(world, mesh, {Axis::Context, Axis::Data});
  }
};

struct HsdpPlace : ladder::HsdpPlace {
  int64_t first(int64_t share, int64_t k, int64_t micro) const {
    if (mistake == Mistake::Sequences) return rank * share + k * micro;
    return ladder::HsdpPlace::first(share, k, micro);
  }
};

class TensorParallel : public ladder::TensorParallel {
 public:
  using ladder::TensorParallel::TensorParallel;
  void norm_backward_weight(const Ctx& ctx, const Affine& grads, Tensor dout, Tensor inp,
                            const NormSaved& saved, Into into) {
    if (mistake == Mistake::Norms)
      return ladder::norm_backward_weight(ctx, grads, dout, inp, saved, into);
    ladder::TensorParallel::norm_backward_weight(ctx, grads, dout, inp, saved, into);
  }
};

class ContextParallel : public ladder::ContextParallel {
 public:
  using ladder::ContextParallel::ContextParallel;
  void sum_losses(Tensor losses) {
    ladder::ContextParallel::sum_losses(losses);
    if (mistake == Mistake::Loss) ladder::ContextParallel::sum_losses(losses);
  }
};

int64_t sum_over(Comm& comm, int64_t x) {
  return mistake == Mistake::Targets ? x : ladder::sum_over(comm, x);
}

void sum_over_replicas(const Ctx& ctx, CommStream& replicas, const Shard& grads) {
  if (mistake == Mistake::Replicas) return;
  ladder::sum_over_replicas(ctx, replicas, grads);
  if (mistake == Mistake::Mean)
    ctx.kernels->scale(ctx, grads.tensor, 1.0f / static_cast<float>(replicas.size()));
}

double grad_norm(const Ctx& ctx, const Flat& grads, const ParamLayout& layout, Tensor limbs,
                 Comm* comm) {
  if (mistake != Mistake::Copies) return ladder::grad_norm(ctx, grads, layout, limbs, comm);
  const ParamLayout first(layout.config(), layout.shards(), {0, layout.tensor_rank().size},
                          layout.stage_rank());
  return ladder::grad_norm(ctx, grads, first.shard(layout.rank()), limbs, comm);
}

}  // namespace ladder::planted

// The program takes these in the place of the sound ones. Its main() has another name here.
#define MeshGroups planted::MeshGroups
#define HsdpPlace planted::HsdpPlace
#define TensorParallel planted::TensorParallel
#define ContextParallel planted::ContextParallel
#define sum_over(...) planted::sum_over(__VA_ARGS__)
#define sum_over_replicas(...) planted::sum_over_replicas(__VA_ARGS__)
#define grad_norm(...) planted::grad_norm(__VA_ARGS__)
#define main chapter_main
#include "chapters/33_mesh/main.cpp"
#undef main

int main(int argc, char** argv) {
  using ladder::planted::Mistake;
  ladder::planted::mistake = ladder::named<Mistake>(argv[1]).value();
  return chapter_main(argc - 2, argv + 2);
}
