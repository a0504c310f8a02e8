#include "common/run/trace.h"

#include <array>
#include <cmath>
#include <cstdio>

#include <fmt/format.h>

namespace ladder {
namespace {

// C's %a: exact, and the same text for the same bits.
std::string hex_float(double value) {
  if (std::isnan(value)) return "nan";
  std::array<char, 40> text{};
  std::snprintf(text.data(), text.size(), "%a", value);
  return text.data();
}

// The shortest text that reads as the same number.
template <class Float>
std::string decimal(Float value) {
  return std::isfinite(value) ? fmt::format("{}", value) : "null";
}

}  // namespace

std::string loss_text(double loss) {
  return std::isnan(loss) ? "nan" : fmt::format("{:.4f}", loss);
}

std::string trace_line(const StepRecord& r, uint64_t param_hash) {
  return fmt::format(R"({{"step":{},"loss":"{}","grad_norm":"{}","lr":"{}","param_hash":"{:016x}",)"
                     R"("decimal":{{"loss":{},"grad_norm":{},"lr":{}}}}})"
                     "\n",
                     r.step, hex_float(r.loss), hex_float(r.grad_norm), hex_float(r.lr), param_hash,
                     decimal(r.loss), decimal(r.grad_norm), decimal(r.lr));
}

}  // namespace ladder
