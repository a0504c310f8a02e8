#include "common/run/command_line.h"

#include <CLI/CLI.hpp>

#include "common/comm/run_ranks.h"
#include "common/error.h"
#include "common/run/run_main.h"

namespace ladder {
namespace {

// CLI11 reads an empty number as 0.
void refuse_empty_values(const CLI::App& app) {
  for (const CLI::Option* option : app.get_options())
    for (const std::string& value : option->results())
      if (value.empty()) throw UserError("{} needs a value", option->get_name());
}

CLI::Option* add_option(CLI::App& app, const char* flag, auto& value, const std::string& help) {
  return app.add_option(flag, value, help);
}
CLI::Option* add_option(CLI::App& app, const char* flag, bool& value, const std::string& help) {
  return app.add_flag(flag, value, help);
}
CLI::Option* add_option(CLI::App& app, const char* flag, uint64_t& value, const std::string& help) {
  return app.add_option(flag, value, help);
}

// "512MB" becomes 512 x 2^20. CLI11 alone would speak of types, and list all its units.
std::string to_bytes(std::string& text) {
  const std::string given = text;
  try {
    const std::string wrong = CLI::AsSizeValue(/*kb_is_1000=*/false)(text);
    // A number of bytes is an int64_t elsewhere.
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
  app_->option_defaults()->always_capture_default();
  app_->allow_config_extras(CLI::config_extras_mode::error);
  app_->set_config("--config", "", "file of 'flag = value' lines; the command line wins");
}

CommandLine::~CommandLine() = default;

void CommandLine::add_value(const char* flag, Value value, const std::string& help,
                            const FlagRules& rules) {
  CLI::Option* option =
      std::visit([&](auto* v) { return add_option(*app_, flag, *v, help); }, value);
  option->group(group_);
  if (!rules.legal.empty()) option->check(CLI::IsMember(rules.legal));
  if (rules.shown_default) option->default_str(rules.shown_default);
  if (rules.instead_of) option->excludes(app_->get_option(rules.instead_of));
  if (rules.list) option->delimiter(',');
  if (rules.bytes)
    option->transform(CLI::Validator(to_bytes, "SIZE"));
  else if (std::holds_alternative<uint64_t*>(value))  // a negative number would wrap
    option->check(CLI::Range(0.0, 0x1p64, "0 to 2^64"));
}

void CommandLine::parse(int argc, const char* const* argv) {
  try {
    app_->parse(argc, argv);
    refuse_empty_values(*app_);
    if (config_) *config_ = app_->get_config_ptr()->as<std::string>();
  } catch (const CLI::Success& help) {
    if (launched_local_rank() == 0) app_->exit(help);
    throw HelpPrinted{};
  } catch (const CLI::ConfigError& e) {
    throw UserError("--config: {}; lines are 'flag = value', and --help lists the flags", e.what());
  } catch (const CLI::FileError& e) {
    throw UserError("--config: {}", e.what());
  } catch (const CLI::ParseError& e) {
    throw UserError("{}; --help lists the flags", e.what());
  }
}

}  // namespace ladder
