// Newton-Schulz on drawn matrices; which matrices a model has and who owns them; two updates on one
// rank and on several.
#include "labs/check.h"

#include <array>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "chapters/32_optimizers/muon.h"
#include "common/comm/self_comm.h"
#include "common/model/config.h"
#include "labs/ranks.h"

namespace ladder::lab {
namespace {

void run_newton_schulz(Sheet& sheet, const std::string& precision) {
  const Dtype dtype = precision == "fp32" ? Dtype::F32 : Dtype::BF16;
  SelfComm self;
  OneRank me(self);
  const auto m = sheet.pick<int64_t>("rows", {12, 16, 20}), n = 2 * m + 4;
  NewtonSchulz newton_schulz(me.arena, n * n, n, dtype);
  int64_t before = 0;
  const auto one = [&](const char* name, int64_t R, int64_t N, float length) {
    const Tensor x = sheet.drawn(me.arena, name, {R, N});
    me.ctx.kernels->scale(me.ctx, x, length);
    newton_schulz.orthogonalize(me.ctx, x);
    sheet.bits(fmt::format("newton/{}: {} by {}, {}", name, R, N, precision), x);
    sheet.text(fmt::format("flops/counted: {}, {}", name, precision),
               fmt::format("{} {}", newton_schulz.counted() - before, NewtonSchulz::flops(R, N)));
    before = newton_schulz.counted();
  };
  one("wide", m, n, 1);
  one("tall", n, m, 1);
  one("square", m, m, 1);
  if (dtype != Dtype::F32) return;
  one("small", m, n, 1e-8f);
  one("smallest", n, m, 1e-10f);
}

GptConfig model(const Sheet& sheet, const char* name) {
  GptConfig gpt = preset(name);
  gpt.layers = sheet.pick<int64_t>("layers", {2, 3});
  gpt.heads = 4;
  gpt.channels = sheet.pick<int64_t>("channels", {16, 32});
  if (gpt.kv_heads > 0) gpt.kv_heads = 2;
  if (gpt.hidden > 0) gpt.hidden = sheet.pick<int64_t>("hidden", {48, 80});
  return gpt;
}

std::string pieces_of(const GptConfig& gpt, const ParamSpec& spec) {
  const MuonMatrix matrix = muon_matrix(gpt, spec);
  std::string all = fmt::format("{} of {} in {}:", matrix.name, matrix.size, matrix.groups);
  for (const MuonPiece& p : matrix.pieces)
    all += fmt::format(" {}+{} {}x{}", p.column, p.count, p.rows, p.N);
  return all;
}

/// The matrices of a model. Each of these names has two rows or more in all: a fault costs enough.
void run_matrices(Sheet& sheet, const GptConfig& gpt, const std::string& name) {
  const ParamLayout layout(gpt);
  std::string all;
  for (const ParamSpec& spec : layout.specs())
    if (is_muon(spec)) all += spec.name + " ";
  sheet.text("matrices/which: " + name, all);
  for (const ParamSpec& spec : layout.specs(1)) {
    if (spec.role == ladder::Role::Qkv) sheet.text("matrices/qkv: " + name, pieces_of(gpt, spec));
    if (spec.role == ladder::Role::GateUp) {
      sheet.text("matrices/gate and up: " + name, pieces_of(gpt, spec));
      sheet.text("matrices/gate and up: " + name + ", last block",
                 pieces_of(gpt, layout.specs(gpt.layers)[&spec - layout.specs(1).data()]));
    }
    if (spec.role == ladder::Role::Projection)
      sheet.text("matrices/others: " + name + ", " + spec.name, pieces_of(gpt, spec));
  }
}

void run_owners(Sheet& sheet, const GptConfig& gpt, const std::string& name) {
  for (const int ranks : {2, 4, 8}) {
    const ParamLayout whole(gpt, ranks);
    std::string owners, sent;
    for (const MuonMatrix& matrix : owned_matrices(whole))
      owners += fmt::format("{} {}, ", matrix.name, matrix.owner);
    sheet.text(fmt::format("owners/{}, {} ranks", name, ranks), owners);
    for (int r = 0; r < ranks; ++r) sent += fmt::format("{} ", MuonPlan(whole.shard(r)).sent(r));
    sheet.text(fmt::format("sent/bytes: {}, {} ranks", name, ranks), sent);
  }
}

void run_scale(Sheet& sheet) {
  const auto large = static_cast<int64_t>(sheet.pick("large", {24, 40, 56}));
  for (const AdjustLr adjust :
       {AdjustLr::MatchRmsAdamw, AdjustLr::Original, AdjustLr::SpectralUnclamped}) {
    MuonOptions options;
    options.adjust = adjust;
    const std::array scales{options.scale(16, large), options.scale(large, 16)};
    sheet.bits(fmt::format("scale/all: {}", to_string(adjust)), scales);
  }
}

void run_update(Sheet& sheet, const GptConfig& gpt, int ranks) {
  const ParamLayout whole(gpt, ranks);
  const auto found = on_ranks<std::vector<Row>>(ranks, [&](Comm& comm, std::vector<Row>& rows) {
    OneRank me(comm);
    const ParamLayout shard = whole.shard(comm.rank());
    const auto stream = static_cast<uint64_t>(comm.rank()) + 1;
    const Tensor w = sheet.drawn(me.arena, "weights", {shard.size()}, stream);
    const Tensor g = me.arena.zeros(Mem::Grad, "grads", Dtype::F32, {shard.size()});
    Muon muon(me.arena, shard, {}, {}, comm);
    for (uint64_t step = 1; step <= 2; ++step) {
      sheet.draw(g, "gradients", 100 * step + stream);
      muon.step(me.ctx, shard.own(w), shard.own(g), 0.01f, 0.02f, static_cast<int64_t>(step));
      rows.push_back({fmt::format("weights, step {}", step), numbers(w)});
      rows.push_back({fmt::format("momentum, step {}", step), numbers(muon.tensors()[0].tensor)});
    }
  });
  for (size_t r = 0; r < found.size(); ++r) write(sheet, "update", r, found[r]);
}

}  // namespace

void cases(Sheet& sheet) {
  for (const std::string precision : {"fp32", "bf16"})
    sheet.run("Newton-Schulz, " + precision, [&] { run_newton_schulz(sheet, precision); });
  const GptConfig gpt = model(sheet, "nano"), llama = model(sheet, "llama-nano");
  sheet.run("matrices of a GPT", [&] { run_matrices(sheet, gpt, "GPT"); });
  sheet.run("matrices of a LLaMA", [&] { run_matrices(sheet, llama, "LLaMA"); });
  sheet.run("owners, GPT", [&] { run_owners(sheet, gpt, "GPT"); });
  sheet.run("owners, LLaMA", [&] { run_owners(sheet, llama, "LLaMA"); });
  sheet.run("scale", [&] { run_scale(sheet); });
  for (const int ranks : {1, 2, sheet.pick("ranks", {4, 8})})
    sheet.run(fmt::format("updates on {} ranks", ranks),
              [&] { run_update(sheet, ranks == 2 ? llama : gpt, ranks); });
}

}  // namespace ladder::lab
