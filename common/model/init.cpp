#include "common/model/init.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <span>
#include <vector>

#include "common/random.h"
#include "kernels/cpu/team.h"
#include "kernels/transfer.h"

namespace ladder {
namespace {

constexpr double kInitStd = 0.02;

double init_std(Role role, int64_t layers) {
  switch (role) {
    case Role::Gain:
    case Role::Bias:
    case Role::ProjectionBias:
    case Role::QkvBias:
    case Role::AdapterA:  // uniform
    case Role::AdapterB:
    case Role::AdapterQkvB:
    case Role::AdapterGateUpB: return 0;
    // 2 L branches add to the residual stream. Its variance must not grow with depth.
    case Role::Projection: return kInitStd / std::sqrt(2.0 * static_cast<double>(layers));
    default: return kInitStd;
  }
}

/// out[i] = element first + i of the tensor. `first` is even.
void fill_normal(float* out, int64_t n, int64_t first, const Random& random, double std) {
  for (int64_t i = 0; i < n; i += 2) {
    const auto pair = random.normal_pair(static_cast<uint64_t>((first + i) / 2));
    out[i] = static_cast<float>(std * pair[0]);
    if (i + 1 < n) out[i + 1] = static_cast<float>(std * pair[1]);
  }
}

/// out[i] = element first + i of the tensor, uniform in +-most.
void fill_uniform(float* out, int64_t n, int64_t first, const Random& random, double most) {
  for (int64_t i = 0; i < n; ++i)
    out[i] = static_cast<float>(most * (2 * random.uniform(static_cast<uint64_t>(first + i)) - 1));
}

/// Calls use(spec, here, there, n) for pieces of the runs of some parameters. Threads of ctx take
/// turns. A piece has an even size, because a draw gives two numbers.
template <class Use>
void for_pieces(const Ctx& ctx, std::span<const ParamSpec> specs, const Use& use) {
  constexpr int64_t kPiece = 1 << 14;
  auto part = [&](int thread) {
    int64_t turn = 0;
    for (const ParamSpec& spec : specs)
      spec.for_runs([&](int64_t here, int64_t there, int64_t n) {
        for (int64_t i = 0; i < n; i += kPiece)
          if (turn++ % ctx.threads == thread)
            use(spec, here + i, there + i, std::min(kPiece, n - i));
      });
  };
  Team::mine(ctx.threads).run(part);
}

// The finalizer of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014): each bit of x affects all bits.
uint64_t mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

}  // namespace

void init_params(const Ctx& ctx, const Flat& flat, const ParamLayout& layout, uint64_t seed) {
  const std::vector<Tensor> sections = layout.sections_of(flat);
  HostCopy host = HostCopy::to_write(ctx, *std::ranges::max_element(sections, {}, &Tensor::size));
  for (int64_t s = 0; s < layout.sections(); ++s) {
    const Tensor section = layout.section_of(flat, s);
    if (section.size() == 0) continue;
    host.turn_to(section);
    auto* to = host.tensor().data<float>();
    auto clear = [&](int thread) {  // padding stays zero
      const Range part = leaf(thread, ctx.threads, section.size());
      std::fill_n(to + part.begin, part.size(), 0.0f);
    };
    Team::mine(ctx.threads).run(clear);
    const auto draw = [&](const ParamSpec& spec, int64_t here, int64_t there, int64_t n) {
      float* out = to + spec.offset - layout.section(s).begin + here;
      const double std = init_std(spec.role, layout.config().layers);
      if (spec.role == Role::Gain) std::fill_n(out, n, 1.0f);
      if (std > 0) fill_normal(out, n, there, Random(seed, spec.name), std);
      if (spec.role == Role::AdapterA)
        fill_uniform(out, n, there, Random(seed, spec.name),
                     1 / std::sqrt(static_cast<double>(spec.shape.dims[1])));
    };
    for_pieces(ctx, layout.specs(s), draw);
    host.send();
  }
}

uint64_t param_hash(const Ctx& ctx, const Flat& flat, const ParamLayout& layout) {
  const HostCopy host = HostCopy::of(ctx, flat.tensor);
  std::atomic<uint64_t> all = 0;
  for_pieces(
      ctx, layout.specs(), [&](const ParamSpec& spec, int64_t here, int64_t there, int64_t n) {
        if (spec.is_copy) return;
        const auto* part = layout.tensor(flat.copied_to(host.tensor()), spec).data<float>() + here;
        const uint64_t key = hash_name(spec.name);
        uint64_t sum = 0;
        for (int64_t i = 0; i < n; ++i) {
          const uint64_t bits = std::bit_cast<uint32_t>(part[i]);
          sum += mix(mix(key + static_cast<uint64_t>(there + i)) + bits);
        }
        all += sum;
      });
  return all;
}

}  // namespace ladder
