// CommandLine: the flags of a program.
//
// CLI11 does the work, in one source file: its headers take longer to compile than a chapter.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <fmt/format.h>

#include "common/error.h"
#include "common/names.h"

namespace CLI {
class App;
}

namespace ladder {

/// What a flag accepts, beyond the type of its value.
struct FlagRules {
  std::vector<std::string> legal = {};  ///< all legal values; empty: any
  const char* shown_default = nullptr;  ///< what --help shows if the value has no default yet
  const char* instead_of = nullptr;     ///< a flag that must not be given together with it
  std::vector<std::string> needs = {};  ///< "--a", "--b x": one of them must be given, too
  bool bytes = false;                   ///< a number with a unit: 512MB is 512 x 2^20
  bool list = false;                    ///< values separated by commas
};

/// A flag after parse(), given or not.
struct FlagValue {
  std::string flag;   ///< "--lr"
  std::string value;  ///< "0.001"; empty: it has no value
};

/// What parse() leaves to be told and compared.
struct Given {
  std::string command;           ///< the words of the command line
  std::vector<FlagValue> flags;  ///< all, in the order of --help; first "the program"
};

class CommandLine {
 public:
  /// @param description the first line of --help
  explicit CommandLine(const std::string& description);
  CommandLine(const CommandLine&) = delete;
  CommandLine& operator=(const CommandLine&) = delete;
  ~CommandLine();

  /// Sets the heading in --help for the flags that follow.
  void group(std::string name) { group_ = std::move(name); }

  /// parse() fills it. The value of "the program" is the description.
  void record_in(Given& given) { given_ = &given; }

  /// A flag that sets `value`. The present value is the default. A bool takes no argument. An enum
  /// takes its names, or only those in `rules.legal`. `value` must live until parse().
  template <class T>
  void add(const char* flag, T& value, const std::string& help, FlagRules rules = {}) {
    if constexpr (HasNames<T>) {
      if (rules.legal.empty()) rules.legal.assign(kNames<T>.begin(), kNames<T>.end());
      const auto name = std::make_shared<std::string>(to_string(value));
      set_enums_.emplace_back([&value, name] { value = named<T>(*name).value(); });
      add_value(flag, name.get(), help, rules);
    } else {
      add_value(flag, &value, help, rules);
    }
  }
  /// The same for several names separated by commas. Without the flag there are none.
  template <HasNames Enum>
  void add(const char* flag, std::vector<Enum>& values, const std::string& help) {
    const auto names = std::make_shared<std::vector<std::string>>();
    set_enums_.emplace_back([&values, names] {
      for (const std::string& name : *names) values.push_back(named<Enum>(name).value());
    });
    add_value(flag, names.get(), help,
              {.legal = {kNames<Enum>.begin(), kNames<Enum>.end()}, .list = true});
  }

  /// Reads the flags of all lessons: calls add_to() of each of `options`, then parse(), then
  /// check() of those that have one.
  template <class... Options>
  void read(int argc, const char* const* argv, Options&... options) {
    (options.add_to(*this), ...);
    parse(argc, argv);
    const auto check = [](auto& option) {
      if constexpr (requires { option.check(); }) option.check();
    };
    (check(options), ...);
  }

  /// Sets all values. A bad command line becomes a UserError of one line. --help prints and throws
  /// HelpPrinted.
  void parse(int argc, const char* const* argv);

 private:
  using Value = std::variant<bool*, int*, int64_t*, uint64_t*, float*, double*, std::string*,
                             std::optional<int>*, std::optional<int64_t>*, std::optional<double>*,
                             std::vector<std::string>*>;
  void add_value(const char* flag, Value value, const std::string& help, const FlagRules& rules);
  void check_needs() const;

  std::unique_ptr<CLI::App> app_;
  std::string group_;
  Given* given_ = nullptr;
  std::vector<std::pair<std::string, Value>> values_;  ///< by flag
  std::vector<std::pair<std::string, std::vector<std::string>>> needs_;
  std::vector<std::function<void()>> set_enums_;  ///< from the names that CLI11 read
};

/// @throws UserError that names the flag and what is legal
inline void require_range(std::string_view flag, int64_t value, int64_t low, int64_t high) {
  if (value < low || value > high)
    throw UserError("{} must be from {} to {}, not {}", flag, low, high, value);
}

/// "1, 2, 4": the powers of two up to `most` that are legal(n). 1 always is.
template <class Legal>
std::string legal_degrees(int64_t most, Legal&& legal) {
  std::string list = "1";
  for (int64_t n = 2; n <= most; n *= 2)
    if (legal(n)) list += fmt::format(", {}", n);
  return list;
}

}  // namespace ladder
