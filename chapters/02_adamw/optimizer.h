// --optimizer: SGD, Adam with L2 or AdamW, chosen at run time.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>
#include <vector>

#include "chapters/01_sgd/sgd.h"
#include "chapters/02_adamw/adamw.h"
#include "common/error.h"
#include "common/run/command_line.h"
#include "common/save/manifest.h"

namespace ladder {

/// Decay: Adam adds it to the gradient (L2), AdamW subtracts it from the weights.
enum class OptimizerKind : uint8_t { Sgd, Adam, AdamW };
constexpr auto names_of(OptimizerKind) { return std::array{"sgd", "adam", "adamw"}; }

struct OptimizerOptions {
  OptimizerKind kind = OptimizerKind::AdamW;
  AdamWOptions adamw;

  void add_to(CommandLine& line) {
    line.group("02_adamw");
    line.add("--optimizer", kind, "sgd, adam (L2) or adamw");
    adamw.add_to(line);
  }
  void check() const { adamw.check(); }
};

/// @throws UserError if a checkpoint has the states of another optimizer than this run. The message
/// follows "its state optimizer: ".
inline void check_same_optimizer(std::string_view theirs, std::string_view ours) {
  if (theirs != ours)
    throw UserError(
        "of --optimizer {}, and this run has {}; --load DIR/model.safetensors takes the weights "
        "alone",
        theirs, ours);
}

class Optimizer {
 public:
  Optimizer(Arena& arena, const ParamLayout& layout, const SgdOptions& sgd,
            const OptimizerOptions& options)
      : kind_(options.kind), rule_(make(arena, layout, sgd, options)) {}

  /// Bytes of Optim, from the formula of the chosen optimizer.
  /// @throws UserError if there is a momentum, and the optimizer takes none
  static int64_t bytes(const ParamLayout& layout, const SgdOptions& sgd,
                       const OptimizerOptions& options) {
    if (options.kind == OptimizerKind::Sgd) return Sgd::bytes(layout, sgd);
    if (sgd.momentum != 0)
      throw UserError("--momentum is for --optimizer sgd, not {}", to_string(options.kind));
    return AdamW::bytes(layout);
  }

  /// One update of all parameters. params, grads F32.
  void step(const Ctx& ctx, const Flat& params, const Flat& grads, float lr) {
    const Span span(ctx, "optimizer_step");
    ++updates_;
    std::visit(
        [&](auto& rule) {
          if constexpr (std::is_same_v<decltype(rule), Sgd&>)
            rule.step(ctx, params, grads, lr);
          else
            rule.step(ctx, params, grads, lr, updates_);
        },
        rule_);
  }

  /// What the next step needs from a checkpoint: tensors, and the number of updates, which is t in
  /// the bias corrections. The name tells Adam from AdamW, because both have the same tensors.
  std::vector<NamedTensor> tensors() const {
    return std::visit([](const auto& rule) { return rule.tensors(); }, rule_);
  }
  nlohmann::json state() const { return {{"name", to_string(kind_)}, {"updates", updates_}}; }
  void set_state(const nlohmann::json& state) {
    check_same_optimizer(state.at("name").get<std::string>(), to_string(kind_));
    updates_ = count_in(state.at("updates"));
  }
  /// Checkpoints of chapter 01 have no such state, and SGD needs none.
  bool needs_state() const { return kind_ != OptimizerKind::Sgd; }

 private:
  using Rule = std::variant<Sgd, AdamW>;

  static Rule make(Arena& arena, const ParamLayout& layout, const SgdOptions& sgd,
                   const OptimizerOptions& options) {
    if (options.kind == OptimizerKind::Sgd) return Sgd(arena, layout, sgd);
    return AdamW(arena, layout, options.adamw, /*decoupled=*/options.kind == OptimizerKind::AdamW);
  }

  OptimizerKind kind_;
  Rule rule_;

 protected:
  int64_t updates_ = 0;  ///< chapter 34 makes updates, too
};

}  // namespace ladder
