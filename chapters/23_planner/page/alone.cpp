// What the planner asks of a program around it, for a page, which has no backend, no files and no
// shell: these take the place of common/run/backend.cpp and command_line.cpp.
#include <algorithm>
#include <charconv>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <type_traits>
#include <variant>
#include <vector>

#include <fmt/format.h>

#include "common/error.h"
#include "common/run/backend.h"
#include "common/run/command_line.h"
#include "common/run/options.h"
#include "kernels/cpu/table.h"

// The tag of C++ exceptions, which the library of WebAssembly would define if it had them.
__asm__(".globl __cpp_exception\n.tagtype __cpp_exception i32\n__cpp_exception:\n");

namespace CLI {

/// In place of CLI11: the legal values of each flag that has a list of them.
class App {
 public:
  std::map<std::string, std::vector<std::string>> legal;
};

}  // namespace CLI

namespace ladder {
namespace {

template <class Number>
void take(const std::string& flag, const std::string& text, Number& number) {
  const char* const end = text.data() + text.size();
  const auto [last, error] = std::from_chars(text.data(), end, number);
  if (error == std::errc{} && last == end) return;
  if constexpr (std::is_integral_v<Number>)
    throw UserError("{}: {} is no whole number from {} to {}", flag, text,
                    std::numeric_limits<Number>::min(), std::numeric_limits<Number>::max());
  throw UserError("{}: {} is no number", flag, text);
}
template <class Number>
void take(const std::string& flag, const std::string& text, std::optional<Number>& number) {
  take(flag, text, number.emplace());
}
void take(const std::string& /*flag*/, const std::string& text, std::string& value) {
  value = text;
}
void take(const std::string& /*flag*/, const std::string& text, std::vector<std::string>& values) {
  values = {text};
}

}  // namespace

CommandLine::CommandLine(const std::string& /*description*/) : app_(std::make_unique<CLI::App>()) {}
CommandLine::~CommandLine() = default;

void CommandLine::add_value(const char* flag, Value value, const std::string& /*help*/,
                            const FlagRules& rules) {
  values_.emplace_back(flag, value);
  app_->legal[flag] = rules.legal;
}

void CommandLine::parse(int argc, const char* const* argv) {
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    const auto known = std::ranges::find(values_, flag, &std::pair<std::string, Value>::first);
    if (known == values_.end()) throw UserError("{} is no flag of this page", flag);
    if (bool** const given = std::get_if<bool*>(&known->second)) {
      **given = true;
      continue;
    }
    if (++i == argc) throw UserError("{} needs a value", flag);
    const std::string text = argv[i];
    const std::vector<std::string>& legal = app_->legal[flag];
    if (!legal.empty() && std::ranges::find(legal, text) == legal.end())
      throw UserError("{}: {} is not one of {}", flag, text, fmt::join(legal, ", "));
    std::visit(
        [&]<class T>(T* value) {
          if constexpr (!std::is_same_v<T, bool>) take(flag, text, *value);
        },
        known->second);
  }
  for (const auto& set : set_enums_) set();
}

int64_t scratch_bytes(const RunOptions& options) {
  return options.threads.value_or(1) * cpu::kScratchBytes;
}

}  // namespace ladder
