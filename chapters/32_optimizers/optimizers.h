// --optimizer: those of chapter 02, and what this chapter adds.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <type_traits>
#include <variant>
#include <vector>

#include "chapters/02_adamw/optimizer.h"
#include "chapters/32_optimizers/adafactor.h"
#include "chapters/32_optimizers/adamw8bit.h"
#include "chapters/32_optimizers/lion.h"
#include "chapters/32_optimizers/muon.h"
#include "common/error.h"
#include "common/run/command_line.h"
#include "common/save/manifest.h"

namespace ladder {

enum class OptimizersKind : uint8_t { Sgd, Adam, AdamW, Lion, AdamW8bit, Adafactor, Muon };
constexpr auto names_of(OptimizersKind) {
  return std::array{"sgd", "adam", "adamw", "lion", "adamw8bit", "adafactor", "muon"};
}

struct OptimizersOptions {
  OptimizersKind kind = OptimizersKind::AdamW;
  AdamWOptions adamw;
  MuonOptions muon;

  void add_to(CommandLine& line) {
    line.group("02_adamw");
    line.add("--optimizer", kind,
             "sgd, adam (L2), adamw, lion, adamw8bit, adafactor or muon; lion weighs its momentum "
             "by --beta1 and keeps it by --beta2, adafactor uses neither; with muon they are for "
             "what is no matrix of a block");
    adamw.add_to(line);
    muon.add_to(line);
  }
  void check() const {
    adamw.check();
    muon.check();
  }

  /// @throws UserError if it needs whole rows or columns, because ranks have only chunks
  void check_sharding(int64_t ranks) const {
    if (ranks > 1 && kind == OptimizersKind::Adafactor)
      throw UserError(
          "--optimizer adafactor has means over whole rows and columns, and {} ranks hold chunks "
          "of them; legal are sgd, adam, adamw, lion, adamw8bit, muon",
          ranks);
  }
};

class Optimizers {
 public:
  Optimizers(Arena& arena, const ParamLayout& layout, const SgdOptions& sgd,
             const OptimizersOptions& options, Comm& comm)
      : kind_(options.kind), rule_(make(arena, layout, sgd, options, comm)) {}

  /// Adds the bytes that the chosen optimizer takes, by its formula: Optim, and what Muon needs
  /// besides. @throws UserError if there is a momentum, and the optimizer takes none
  static void add_bytes(MemoryBytes& bytes, const ParamLayout& layout, const SgdOptions& sgd,
                        const OptimizersOptions& options) {
    if (options.kind != OptimizersKind::Sgd && sgd.momentum != 0)
      throw UserError("--momentum is for --optimizer sgd, not {}", to_string(options.kind));
    switch (options.kind) {
      case OptimizersKind::Sgd: bytes[Mem::Optim] += Sgd::bytes(layout, sgd); break;
      case OptimizersKind::Lion: bytes[Mem::Optim] += Lion::bytes(layout); break;
      case OptimizersKind::AdamW8bit: bytes[Mem::Optim] += AdamW8bit::bytes(layout); break;
      case OptimizersKind::Adafactor: bytes[Mem::Optim] += Adafactor::bytes(layout); break;
      case OptimizersKind::Muon: Muon::add_bytes(bytes, layout, options.muon); break;
      default: bytes[Mem::Optim] += AdamW::bytes(layout);
    }
  }

  /// One update of all parameters. params, grads F32; `grads` is changed.
  /// @param matrix_lr the rate of Muon's matrices
  void step(const Ctx& ctx, const Flat& params, const Flat& grads, float lr, float matrix_lr) {
    const Span span(ctx, "optimizer_step");
    ++updates_;
    std::visit(
        [&]<class Rule>(Rule& rule) {
          if constexpr (std::is_same_v<Rule, Muon>)
            rule.step(ctx, params, grads, lr, matrix_lr, updates_);
          else if constexpr (std::is_same_v<Rule, Sgd>)
            rule.step(ctx, params, grads, lr);
          else
            rule.step(ctx, params, grads, lr, updates_);
        },
        rule_);
  }

  /// What the next step needs from a checkpoint, in the form of chapter 02. Of Muon's momentum it
  /// says the form, too.
  std::vector<NamedTensor> tensors() const {
    return std::visit([](const auto& rule) { return rule.tensors(); }, rule_);
  }
  nlohmann::json state() const {
    nlohmann::json state{{"name", to_string(kind_)}, {"updates", updates_}};
    if (kind_ == OptimizersKind::Muon) state["momentum"] = Muon::form();
    return state;
  }
  void set_state(const nlohmann::json& state) {
    check_same_optimizer(state.at("name").get<std::string>(), to_string(kind_));
    if (kind_ == OptimizersKind::Muon && state.at("momentum") != Muon::form())
      throw UserError("has momentum of the form {}; legal is \"{}\": m = beta m + (1 - beta) g",
                      state.at("momentum").dump(), Muon::form());
    updates_ = count_in(state.at("updates"));
  }
  bool needs_state() const { return kind_ != OptimizersKind::Sgd; }

  /// @param products operations of the step's products
  void report(Log& log, int64_t products) const {
    if (auto* const muon = std::get_if<Muon>(&rule_)) muon->report(log, products);
  }

 private:
  using Rule = std::variant<Sgd, AdamW, Lion, AdamW8bit, Adafactor, Muon>;

  static Rule make(Arena& arena, const ParamLayout& layout, const SgdOptions& sgd,
                   const OptimizersOptions& options, Comm& comm) {
    if (options.kind == OptimizersKind::Sgd) return Sgd(arena, layout, sgd);
    if (options.kind == OptimizersKind::Lion) return Lion(arena, layout, options.adamw);
    if (options.kind == OptimizersKind::AdamW8bit) return AdamW8bit(arena, layout, options.adamw);
    if (options.kind == OptimizersKind::Adafactor) return Adafactor(arena, layout, options.adamw);
    if (options.kind == OptimizersKind::Muon)
      return Muon(arena, layout, options.adamw, options.muon, comm);
    return AdamW(arena, layout, options.adamw,
                 /*decoupled=*/options.kind == OptimizersKind::AdamW);
  }

  OptimizersKind kind_;
  Rule rule_;
  int64_t updates_ = 0;
};

}  // namespace ladder
