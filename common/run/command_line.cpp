#include "common/run/command_line.h"

#include <algorithm>
#include <limits>
#include <type_traits>

#include <CLI/CLI.hpp>

#include "common/comm/run_ranks.h"
#include "common/error.h"
#include "common/number_in.h"
#include "common/run/run_main.h"

namespace ladder {
namespace {

/// Requires a whole number as people write it. CLI11 would read 010 as 8, and cut numbers that are
/// too large.
template <class Int>
std::string to_decimal(std::string& text) {
  const std::optional<Int> value = number_in<Int>(text);
  if (!value)
    return fmt::format("{} is no whole number from {} to {}", text, std::numeric_limits<Int>::min(),
                       std::numeric_limits<Int>::max());
  text = std::to_string(*value);
  return "";
}

/// "512MB" becomes 512 x 2^20.
std::string to_bytes(std::string& text) {
  std::string digits = text.substr(0, text.find_first_not_of("0123456789"));
  const std::string unit = text.substr(digits.size());
  if (!to_decimal<int64_t>(digits).empty()) return text + " is no size, as 512MB";
  text = digits + unit;
  const std::string wrong = CLI::AsSizeValue(/*kb_is_1000=*/false)(text);
  return wrong.empty() ? to_decimal<int64_t>(text) : wrong;
}

// CLI11 would read an empty number as 0, and a flag with the value 7 as true.
void refuse_odd_values(const CLI::App& app) {
  for (const CLI::Option* option : app.get_options())
    for (const std::string& value : option->results()) {
      if (value.empty()) throw UserError("{} needs a value", option->get_name());
      if (option->get_expected_max() == 0 && value != "true" && value != "false")
        throw UserError("{} is true or false, not {}", option->get_name(), value);
    }
}

/// @param words "--alarms", or with the value that it must have: "--dedup near"
bool is_given(const CLI::App& app, const std::string& words) {
  const size_t blank = words.find(' ');
  const CLI::Option* option = app.get_option_no_throw(words.substr(0, blank));
  if (!option || option->empty()) return false;
  const std::string& value = option->results().back();
  return blank == words.npos ? value != "false" : value == words.substr(blank + 1);
}

/// A value as a person would write it.
template <class T>
std::string text_of(const T& value) {
  if constexpr (requires { value.has_value(); })
    return value ? text_of(*value) : "";
  else if constexpr (std::is_same_v<T, std::vector<std::string>>)
    return fmt::format("{}", fmt::join(value, ","));
  else
    return fmt::format("{}", value);
}

}  // namespace

CommandLine::CommandLine(const std::string& description)
    : app_(std::make_unique<CLI::App>(description)) {
  app_->option_defaults()->always_capture_default();
}

CommandLine::~CommandLine() = default;

void CommandLine::add_value(const char* flag, Value value, const std::string& help,
                            const FlagRules& rules) {
  const auto add = [&]<class T>(T* v) {
    if constexpr (std::is_same_v<T, bool>)
      return app_->add_flag(flag, *v, help);
    else
      return app_->add_option(flag, *v, help);
  };
  CLI::Option* option = std::visit(add, value);
  option->group(group_);
  values_.emplace_back(flag, value);
  if (!rules.legal.empty()) option->check(CLI::IsMember(rules.legal));
  if (rules.shown_default) option->default_str(rules.shown_default);
  if (rules.instead_of) option->excludes(app_->get_option(rules.instead_of));
  if (!rules.needs.empty()) needs_.emplace_back(flag, rules.needs);
  if (rules.list) option->delimiter(',');
  if (rules.bytes) option->transform(CLI::Validator(to_bytes, "SIZE"));
  const auto check = [&]<class T>(T*) {
    if constexpr (std::is_same_v<T, std::optional<int>> ||
                  std::is_same_v<T, std::optional<int64_t>>)
      option->transform(CLI::Validator(to_decimal<typename T::value_type>, ""));
    else if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>)
      option->transform(CLI::Validator(to_decimal<T>, ""));
  };
  if (!rules.bytes) std::visit(check, value);
}

/// Otherwise a flag would do nothing, without a word.
void CommandLine::check_needs() const {
  for (const auto& [flag, needs] : needs_)
    if (is_given(*app_, flag) &&
        std::ranges::none_of(needs, [&](const auto& words) { return is_given(*app_, words); }))
      throw UserError("{} needs {}", flag, fmt::join(needs, " or "));
}

void CommandLine::parse(int argc, const char* const* argv) try {
  app_->parse(argc, argv);
  refuse_odd_values(*app_);
  check_needs();
  for (const auto& set : set_enums_) set();
  if (!given_) return;
  given_->command = fmt::format("{}", fmt::join(argv, argv + argc, " "));
  given_->flags = {{"the program", app_->get_description()}};
  for (const auto& [flag, value] : values_)
    given_->flags.push_back({flag, std::visit([](const auto* v) { return text_of(*v); }, value)});
} catch (const CLI::Success& help) {
  if (launched_rank() == 0) app_->exit(help);
  throw HelpPrinted{};
} catch (const CLI::ParseError& e) {
  const std::string text = e.what();  // of a user, so it is shortened
  throw UserError("{}; --help lists the flags", text);
}

}  // namespace ladder
