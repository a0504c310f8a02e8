// Muon: the momentum of a matrix, orthogonalized (Keller Jordan, 2024; arXiv 2502.16982).
//
//   m = beta m + (1 - beta) g                  the momentum, as torch.lerp(m, g, 1 - beta)
//   u = beta m + (1 - beta) g                  Nesterov: the momentum one step ahead
//   o = NewtonSchulz(u)                        directions of u, about equally long
//   w = w - lr decay w - lr scale o
//
// with scale, for a matrix of R rows and N columns:
//
//   match_rms_adamw       0.2 sqrt(max(R, N))   an update as long as AdamW's: same rates and decay
//   original              sqrt(max(1, R / N))
//   spectral_unclamped    sqrt(R / N)
//
// An orthogonal (R,N) has the root mean square 1 / sqrt(max(R, N)), and AdamW's updates have about
// 0.2. This is what torch 2.15 computes, with --newton-schulz bf16 to its roundings. Moonlight's
// momentum, m = beta m + g, has the same direction and is 1 / (1 - beta) times as long. So a
// checkpoint says which form it holds.
//
// AdamW updates what is no matrix of a block. Its two moments and Muon's one lie in the same two
// flat buffers, as chapter 08 cuts them. `v` of matrices is never written: 4 bytes an
// element are wasted.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "chapters/02_adamw/adamw.h"
#include "chapters/32_optimizers/newton_schulz.h"
#include "chapters/32_optimizers/owners.h"
#include "chapters/32_optimizers/proof/ways.h"
#include "common/comm/comm.h"
#include "common/error.h"
#include "common/run/command_line.h"
#include "common/run/log.h"

namespace ladder {

enum class AdjustLr : uint8_t { MatchRmsAdamw, Original, SpectralUnclamped };
constexpr auto names_of(AdjustLr) {
  return std::array{"match_rms_adamw", "original", "spectral_unclamped"};
}

struct MuonOptions {
  std::optional<double> lr;
  float momentum = 0.95f;
  AdjustLr adjust = AdjustLr::MatchRmsAdamw;
  std::string newton_schulz = "fp32";

  void add_to(CommandLine& line) {
    line.group("32_optimizers");
    const FlagRules muon{.needs = {"--optimizer muon"}};
    line.add("--muon-lr", lr, "Muon: peak rate of matrices; the schedule is that of --lr",
             {.shown_default = "--lr", .needs = muon.needs});
    line.add("--muon-momentum", momentum, "Muon: share of the momentum kept, in [0, 1)", muon);
    line.add("--adjust-lr", adjust,
             "Muon: scale of an update by a matrix's size: match_rms_adamw, original or "
             "spectral_unclamped",
             muon);
    line.add("--newton-schulz", newton_schulz, "Muon: precision of its products, fp32 or bf16",
             {.legal = {"fp32", "bf16"}, .needs = muon.needs});
  }

  /// @throws UserError
  void check() const {
    if (lr && !(*lr > 0 && std::isfinite(*lr)))
      throw UserError("--muon-lr must be above 0, not {}; without the flag it is --lr", *lr);
    if (!(momentum >= 0 && momentum < 1))
      throw UserError("--muon-momentum must be in [0, 1), not {}", momentum);
  }

  /// @param other --lr
  double peak(double other) const { return lr.value_or(other); }
  Dtype dtype() const { return newton_schulz == "bf16" ? Dtype::BF16 : Dtype::F32; }

  /// The scale of the update of a matrix (R,N).
  float scale(int64_t R, int64_t N) const {
    const auto r = static_cast<double>(R), n = static_cast<double>(N);
    if (adjust == AdjustLr::Original) return static_cast<float>(std::sqrt(std::max(1.0, r / n)));
    if (adjust == AdjustLr::SpectralUnclamped) return static_cast<float>(std::sqrt(r / n));
    return static_cast<float>(0.2 * std::sqrt(std::max(r, n)));
  }
};

class Muon {
 public:
  Muon(Arena& arena, const ParamLayout& layout, const AdamWOptions& adamw,
       const MuonOptions& options, Comm& comm)
      : layout_(&layout),
        adamw_(adamw),
        options_(options),
        plan_(layout),
        group_(comm.split(0, comm.rank())),
        m_(layout.own(arena.zeros(Mem::Optim, "m", Dtype::F32, {layout.size()}))),
        v_(layout.own(arena.zeros(Mem::Optim, "v", Dtype::F32, {layout.size()}))),
        slices_(arena.zeros(Mem::Comm, "muon.slices", Dtype::F32,
                            {plan_.leaving_begin.back(), kAlign})),
        owned_(arena.zeros(Mem::Comm, "muon.owned", Dtype::F32,
                           {plan_.arriving_begin.back(), kAlign})),
        whole_(arena.alloc(Mem::Workspace, "muon.whole", Dtype::F32, {plan_.elements})),
        piece_(arena.alloc(Mem::Workspace, "muon.piece", Dtype::F32, {plan_.elements})),
        newton_schulz_(arena, plan_.elements, plan_.side, options.dtype()) {}

  /// m and v are 8 P bytes of Optim. Slices, those that leave and those that arrive, are Comm.
  static void add_bytes(MemoryBytes& bytes, const ParamLayout& layout, const MuonOptions& options) {
    const MuonPlan plan(layout);
    bytes[Mem::Optim] += AdamW::bytes(layout);
    bytes[Mem::Comm] += 4 * kAlign * (plan.leaving_begin.back() + plan.arriving_begin.back());
    bytes[Mem::Workspace] +=
        8 * plan.elements + NewtonSchulz::bytes(plan.elements, plan.side, options.dtype());
  }

  /// Update t (from 1) of all parameters: `matrix_lr` for matrices, `lr` for the others.
  /// params, grads F32. `grads` is changed
  void step(const Ctx& ctx, const Flat& params, const Flat& grads, float lr, float matrix_lr,
            int64_t t) {
    for (const ParamSpec& spec : layout_->specs()) {
      if (is_muon(spec)) continue;
      const auto part = [&](const Flat& flat) { return layout_->tensor(flat, spec); };
      ctx.kernels->adamw_update(ctx, part(params), part(m_), part(v_), part(grads),
                                adamw_.step_of(spec, lr, t, /*decoupled=*/true));
    }
    momentum(ctx, grads);
    const Span span(ctx, "muon");
    all_to_all_rows(*group_, owned_, plan_.arriving_begin, slices_, plan_.leaving_begin);
    for (size_t i = 0; i < plan_.matrices.size(); ++i)
      if (plan_.matrices[i].owner == group_->rank()) orthogonalize(ctx, i);
    all_to_all_rows(*group_, slices_, plan_.leaving_begin, owned_, plan_.arriving_begin);
    apply(ctx, params, matrix_lr);
    ++updates_;
  }

  std::vector<NamedTensor> tensors() const { return {{"m", m_.tensor}, {"v", v_.tensor}}; }
  static const char* form() { return "lerp"; }

  /// Of an update on this rank: bytes sent and operations, beside those of all ranks in both ways.
  /// @param products operations of the step's products on this rank
  void report(Log& log, int64_t products) const {
    if (updates_ == 0) return;
    const int64_t rank = group_->rank(), sent = group_->statistics().wire_bytes() / updates_,
                  flops = newton_schulz_.counted() / updates_;
    const double share = static_cast<double>(flops) / static_cast<double>(products);
    nlohmann::json& muon = log.extra()["muon"] = ways(layout_->unsharded());
    muon["flops"] = {{"predicted", plan_.flops(rank)}, {"measured", flops}};
    muon["sent"] = {{"predicted", plan_.sent(rank)}, {"measured", sent}};
    muon["share_of_step"] = share;
    log.note(fmt::format("muon: {:.3g} GFLOP an update, {:.3g}% of what the step's products take",
                         static_cast<double>(flops) * 1e-9, 100 * share));
  }

 private:
  /// Writes m, and u into the slices that leave. One call of SGD with momentum makes both. Its
  /// gradient is (1 - beta) g, so its velocity becomes m. Its weights begin as zeros, its rate is
  /// -1, and its step is beta m + (1 - beta) g: so its weights become u.
  void momentum(const Ctx& ctx, const Flat& grads) {
    ctx.kernels->scale(ctx, slices_, 0);
    for (const MuonSlice& slice : plan_.leaving) {
      const ParamSpec& spec = layout_->spec(plan_.matrices[slice.matrix].name);
      const auto part = [&](const Flat& all) { return flat(layout_->tensor(all, spec)); };
      ctx.kernels->scale(ctx, part(grads), 1 - options_.momentum);
      ctx.kernels->sgd_update(ctx, slice.in(slices_), part(m_), part(grads),
                              {.lr = -1, .momentum = options_.momentum, .nesterov = true});
    }
  }

  /// Matrix i, which has arrived in slices, becomes its update, in the same slices.
  void orthogonalize(const Ctx& ctx, size_t i) {
    const MuonMatrix& matrix = plan_.matrices[i];
    const Tensor whole = whole_.first(matrix.size);
    const auto row = [](const Tensor& x) { return x.view({1, 1, x.size()}); };
    for (const MuonSlice& s : plan_.arriving)
      if (s.matrix == i)
        ctx.kernels->copy_columns(ctx, row(whole), s.part.begin, row(s.in(owned_)), 0,
                                  s.part.size());
    const Tensor groups = whole.view({1, matrix.groups, matrix.size / matrix.groups});
    for (const MuonPiece& piece : matrix.pieces) {
      const Tensor x = piece_.first(piece.rows * piece.N);
      const Tensor columns = x.view({1, matrix.groups, piece.count});
      ctx.kernels->copy_columns(ctx, columns, 0, groups, piece.column, piece.count);
      newton_schulz_.orthogonalize(ctx, x.view({piece.rows, piece.N}));
      ctx.kernels->scale(ctx, x, options_.scale(piece.rows, piece.N));
      ctx.kernels->copy_columns(ctx, groups, piece.column, columns, 0, piece.count);
    }
    for (const MuonSlice& s : plan_.arriving)
      if (s.matrix == i)
        ctx.kernels->copy_columns(ctx, row(s.in(owned_)), 0, row(whole), s.part.begin,
                                  s.part.size());
  }

  /// w = w (1 - lr decay) - lr o. The decay has the rate alone, without the scale.
  void apply(const Ctx& ctx, const Flat& params, float lr) {
    for (const MuonSlice& slice : plan_.leaving) {
      const ParamSpec& spec = layout_->spec(plan_.matrices[slice.matrix].name);
      const Tensor w = flat(layout_->tensor(params, spec));
      ctx.kernels->scale(ctx, w, 1 - lr * adamw_.decay_of(spec));
      ctx.kernels->sgd_update(ctx, w, {}, slice.in(slices_),
                              {.lr = lr, .momentum = 0, .nesterov = false});
    }
  }

  const ParamLayout* layout_;
  AdamWOptions adamw_;
  MuonOptions options_;
  MuonPlan plan_;
  std::unique_ptr<Comm> group_;
  Flat m_, v_;
  Tensor slices_, owned_;  ///< (rows, kAlign): of this rank; of the matrices that it owns
  Tensor whole_, piece_;
  NewtonSchulz newton_schulz_;
  int64_t updates_ = 0;
};

}  // namespace ladder
