// The names of an enum's values in one table. Flags, messages and reports all use it.
//
//   enum class Reduction : uint8_t { Halving, Tree };
//   constexpr auto names_of(Reduction) { return std::array{"halving", "tree"}; }
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <string_view>

namespace ladder {

/// An enum that has a names_of() beside it.
template <class Enum>
concept HasNames = requires(Enum value) {
  names_of(value);
};

/// The names in the order of the values.
template <HasNames Enum>
inline constexpr auto kNames = names_of(Enum{});

constexpr std::string_view to_string(HasNames auto value) {
  return kNames<decltype(value)>[static_cast<size_t>(value)];
}

/// The value that has this name, if there is one.
template <HasNames Enum>
constexpr std::optional<Enum> named(std::string_view name) {
  const auto* const at = std::ranges::find(kNames<Enum>, name);
  if (at == kNames<Enum>.end()) return {};
  return static_cast<Enum>(at - kNames<Enum>.begin());
}

}  // namespace ladder
