#include "common/run/command_line.h"

#include <algorithm>
#include <charconv>
#include <istream>
#include <limits>
#include <span>
#include <string_view>
#include <type_traits>

#include <CLI/CLI.hpp>

#include "common/comm/run_ranks.h"
#include "common/error.h"
#include "common/input_file.h"
#include "common/run/branches.h"
#include "common/run/run_main.h"

namespace ladder {
namespace {

constexpr const char* kStatuses =
    "Exit status: 0 done; 1 a fault of the program; 2 bad input; 3 the run came to its end "
    "without\n"
    "having done what was asked (weights that are NaN, a checkpoint or an output not written);\n"
    "130, 143 stopped after a step by SIGINT or SIGTERM, of which a second ends it at once";

// CLI11 would read an empty number as 0, and a flag with the value 7 as true.
void refuse_odd_value(const CLI::Option& option, const std::string& value) {
  if (value.empty()) throw UserError("{} needs a value", option.get_name());
  if (option.get_expected_max() == 0 && value != "true" && value != "false")
    throw UserError("{} is true or false, not {}", option.get_name(), value);
}

void refuse_odd_values(const CLI::App& app) {
  for (const CLI::Option* option : app.get_options())
    for (const std::string& value : option->results()) refuse_odd_value(*option, value);
}

/// The value behind "flag =": without quotes around it, or else without a comment behind it.
std::string value_behind(const std::string& rest) {
  const std::string text = CLI::detail::trim_copy(rest);
  const bool quoted = text.starts_with('"') || text.starts_with('\'');
  const size_t end = quoted ? text.find(text[0], 1) : std::string::npos;
  if (end != std::string::npos) return text.substr(1, end - 1);
  return CLI::detail::trim_copy(text.substr(0, text.find_first_of("#;")));
}

/// The file of --config. CLI11's own reader passes over what has no name, and takes brackets for
/// nested tables.
class ConfigLines : public CLI::ConfigBase {
 public:
  explicit ConfigLines(const CLI::App& app) : app_(app) {}

  std::vector<CLI::ConfigItem> from_config(std::istream& file) const override {
    std::vector<CLI::ConfigItem> flags;
    std::string line;
    for (int number = 1; std::getline(file, line); ++number) {
      const std::string text = CLI::detail::trim_copy(line);
      if (text.empty() || text[0] == '#' || text[0] == ';') continue;
      const size_t equals = text.find('=');
      const std::string name = CLI::detail::trim_copy(text.substr(0, equals));
      if (name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-") != name.npos ||
          name.empty() || std::ranges::count(flags, name, &CLI::ConfigItem::name) > 0)
        throw UserError("--config: line {} is {}; legal is 'flag = value', each flag once", number,
                        line);
      const std::string value =
          equals == text.npos ? "true" : value_behind(text.substr(equals + 1));
      if (const CLI::Option* option = app_.get_option_no_throw("--" + name))
        refuse_odd_value(*option, value);
      flags.push_back({.name = name, .inputs = {value}});
    }
    return flags;
  }

 private:
  const CLI::App& app_;
};

/// Requires a whole number as people write it. CLI11 would read 010 as 8, and cut numbers that are
/// too large.
template <class Int>
std::string to_decimal(std::string& text) {
  Int value{};
  const char* const end = text.data() + text.size();
  const auto read = std::from_chars(text.data(), end, value);
  if (read.ec != std::errc{} || read.ptr != end)
    return text.empty()
               ? ""
               : fmt::format("{} is no whole number from {} to {}", text,
                             std::numeric_limits<Int>::min(), std::numeric_limits<Int>::max());
  text = std::to_string(value);
  return "";
}

/// Of the flags that CLI11 does not know, the first that a branch has, and which: branch_of().
std::string unknown_branch_flag(const CLI::App& app, const CLI::ParseError& e) {
  std::vector<std::string> unknown = app.remaining();
  // For a line "agc = 1" of --config, CLI11 says "INI was not able to parse agc".
  if (const std::string said = e.what(); dynamic_cast<const CLI::ConfigError*>(&e))
    unknown.push_back("--" + said.substr(said.rfind(' ') + 1));
  for (const std::string& word : unknown)
    if (std::string branch = branch_of(word.substr(0, word.find('='))); !branch.empty())
      return branch;
  return "";
}

[[noreturn]] void refuse(const CLI::App& app, const CLI::ParseError& e) {
  if (const std::string branch = unknown_branch_flag(app, e); !branch.empty())
    throw UserError("{}", branch);
  const std::string said = e.what();
  if (dynamic_cast<const CLI::ConfigError*>(&e))
    throw UserError("--config: {}; lines are 'flag = value', and --help lists the flags", said);
  if (dynamic_cast<const CLI::FileError*>(&e)) throw UserError("--config: {}", said);
  throw UserError("{}; --help lists the flags", said);
}

/// @param words "--alarms", or with the value that it must have: "--dedup near"
bool is_given(const CLI::App& app, const std::string& words) {
  const size_t blank = words.find(' ');
  const CLI::Option* option = app.get_option_no_throw(words.substr(0, blank));
  if (!option || option->empty()) return false;
  const std::string& value = option->results().back();
  return blank == words.npos ? value != "false" : value == words.substr(blank + 1);
}

/// The type of a flag's value.
template <class T>
struct ValueOf {
  using Type = T;
};
template <class T>
struct ValueOf<std::optional<T>> {
  using Type = T;
};

CLI::Option* add_option(CLI::App& app, const char* flag, auto& value, const std::string& help) {
  return app.add_option(flag, value, help);
}
CLI::Option* add_option(CLI::App& app, const char* flag, bool& value, const std::string& help) {
  return app.add_flag(flag, value, help);
}
CLI::Option* add_option(CLI::App& app, const char* flag, uint64_t& value, const std::string& help) {
  return app.add_option(flag, value, help);
}

std::string shell_words(std::span<const char* const> words) {
  constexpr const char* kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./=:,+@%";
  std::string line;
  for (const std::string_view word : words) {
    if (!line.empty()) line += ' ';
    const bool plain = !word.empty() && word.find_first_not_of(kPlain) == std::string_view::npos;
    if (!plain) line += '\'';
    for (const char c : word) line += !plain && c == '\'' ? "'\\''" : std::string(1, c);
    if (!plain) line += '\'';
  }
  return line;
}

/// A value as a person would write it.
template <class T>
std::string text_of(const T& value) {
  return fmt::format("{}", value);
}
template <class T>
std::string text_of(const std::optional<T>& value) {
  return value ? text_of(*value) : "";
}
std::string text_of(const std::vector<std::string>& values) {
  return fmt::format("{}", fmt::join(values, ","));
}

// "512MB" becomes 512 x 2^20. CLI11 alone would talk of types, and list all of its units.
std::string to_bytes(std::string& text) {
  const std::string given = text;
  try {
    const std::string wrong = CLI::AsSizeValue(/*kb_is_1000=*/false)(text);
    // Elsewhere a number of bytes is an int64_t.
    if (wrong.empty() && CLI::Range(uint64_t{INT64_MAX})(text).empty()) return "";
  } catch (const CLI::Error&) {
  }
  return fmt::format(
      "{} is no size; legal is a whole number, with a unit or without, as 1536MB, below 8EB",
      given);
}

}  // namespace

CommandLine::CommandLine(const std::string& description)
    : app_(std::make_unique<CLI::App>(description)) {
  app_->footer(kStatuses);
  app_->option_defaults()->always_capture_default();
  app_->allow_config_extras(CLI::config_extras_mode::error);
  // A pipe may never come to an end.
  const auto refuse_no_file = [](std::string& path) {
    if (read_small_file(path, 1 << 16, "--config").find('\0') != std::string::npos)
      throw UserError("--config {}: has a byte that is 0; legal are lines of 'flag = value'", path);
    return std::string();
  };
  app_->set_config("--config", "", "file of 'flag = value' lines; the command line wins")
      ->check(CLI::Validator(refuse_no_file, ""));
  app_->config_formatter(std::make_shared<ConfigLines>(*app_));
}

CommandLine::~CommandLine() = default;

void CommandLine::add_value(const char* flag, Value value, const std::string& help,
                            const FlagRules& rules) {
  CLI::Option* option =
      std::visit([&](auto* v) { return add_option(*app_, flag, *v, help); }, value);
  option->group(group_);
  values_.emplace_back(flag, value);
  if (!rules.legal.empty()) {
    const auto refuse_branch = [flag = std::string(flag), legal = rules.legal](std::string& text) {
      const bool known = std::find(legal.begin(), legal.end(), text) != legal.end();
      const std::string branch = known ? "" : branch_of(flag + " " + text);
      if (!branch.empty()) throw UserError("{}; legal here are {}", branch, fmt::join(legal, ", "));
      return std::string();
    };
    option->check(CLI::Validator(refuse_branch, ""))->check(CLI::IsMember(rules.legal));
  }
  if (rules.shown_default) option->default_str(rules.shown_default);
  if (rules.instead_of) option->excludes(app_->get_option(rules.instead_of));
  if (!rules.needs.empty()) needs_.emplace_back(flag, rules.needs);
  if (rules.list) option->delimiter(',');
  if (rules.bytes)
    option->transform(CLI::Validator(to_bytes, "SIZE"));
  else
    std::visit(
        [&]<class T>(T*) {
          using Number = typename ValueOf<T>::Type;
          if constexpr (std::is_integral_v<Number> && !std::is_same_v<Number, bool>)
            option->transform(CLI::Validator(to_decimal<Number>, ""));
        },
        value);
}

std::vector<FlagValue> CommandLine::record() const {
  std::vector<FlagValue> all{{"the program", app_->get_description()}};
  for (const auto& [flag, value] : values_)
    all.push_back({flag, std::visit([](const auto* v) { return text_of(*v); }, value)});
  return all;
}

/// Otherwise a flag would do nothing, without a word.
void CommandLine::check_needs() const {
  for (const auto& [flag, needs] : needs_)
    if (is_given(*app_, flag) &&
        std::ranges::none_of(needs, [&](const auto& words) { return is_given(*app_, words); }))
      throw UserError("{} needs {}", flag, fmt::join(needs, " or "));
}

void CommandLine::parse(int argc, const char* const* argv) {
  try {
    app_->parse(argc, argv);
    refuse_odd_values(*app_);
    check_needs();
    for (const auto& set : set_enums_) set();
    // Not as<std::string>(): if the flag is not given, CLI11 2.4 reads the first of no results.
    const std::vector<std::string>& configs = app_->get_config_ptr()->results();
    if (configs.size() > 1)
      throw UserError("--config is given {} times; once is legal", configs.size());
    if (config_ && !configs.empty()) *config_ = configs[0];
    if (command_) *command_ = shell_words(std::span(argv, static_cast<size_t>(argc)));
    if (record_) *record_ = record();
  } catch (const CLI::Success& help) {
    if (launched_local_rank() == 0) app_->exit(help);
    throw HelpPrinted{};
  } catch (const CLI::ParseError& e) {
    refuse(*app_, e);
  }
}

}  // namespace ladder
