// Operations with their operands, to be called again and again.
#pragma once

#include <functional>
#include <type_traits>

#include "kernels/kernels.h"

namespace ladder::bench {

/// A call of an operation of the table of `ctx`.
template <class... P>
std::function<void()> call(const Ctx& ctx, void (*Kernels::*operation)(const Ctx&, P...),
                           const std::type_identity_t<P>&... operands) {
  return [=, &ctx] { (ctx.kernels->*operation)(ctx, operands...); };
}

constexpr LionStep kLion{.lr = 1e-3F, .beta1 = 0.9F, .beta2 = 0.99F, .weight_decay = 0.1F};
constexpr AdamStep kAdam{.lr = 1e-3F,
                         .beta1 = 0.9F,
                         .beta2 = 0.95F,
                         .eps = 1e-8F,
                         .weight_decay = 0.1F,
                         .decoupled = true,
                         .correction1 = 0.1F,
                         .correction2 = 0.05F};

}  // namespace ladder::bench
