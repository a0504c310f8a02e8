// The promise "claims are measured", for memory: what a program's formula predicts is what its
// arena counted, to the byte.
#pragma once

#include <string>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "kernels/arena.h"
#include "kernels/check.h"
#include "tests/common/programs.h"

namespace ladder::test {

/// A test of short runs of a small model. Unless flags say otherwise it is nano, with heads that
/// are half as wide. Little text is held out, because validation takes most of the time of one
/// step.
class MemoryRuns : public Programs {
 protected:
  static constexpr int64_t kChannels = 64;  ///< no tensor of it needs padding

  MemoryRuns() { write("text.txt", read("text.txt").substr(0, kTextBytes)); }

  nlohmann::json report(const Program& program, const std::string& flags) const {
    const bool given = flags.find("--channels") != std::string::npos;
    return Programs::report(
        program, fmt::format("{} {}", given ? "" : fmt::format("--channels {}", kChannels), flags));
  }
  nlohmann::json plan(const Program& program, const std::string& flags) const {
    return report(program, "--plan-only " + flags);
  }

 private:
  static constexpr size_t kTextBytes = 400;
};

/// Success if "predicted" equals "measured" wherever a part of --report has both. Otherwise names
/// what differs.
inline ::testing::AssertionResult counted(const nlohmann::json& part, const std::string& name) {
  if (part.is_object() && part.contains("predicted") && part.contains("measured") &&
      part["predicted"] != part["measured"])
    return ::testing::AssertionFailure() << name << ": " << part["predicted"] << " predicted, "
                                         << part["measured"] << " measured";
  if (part.is_structured())
    for (const auto& [key, value] : part.items())
      if (auto result = counted(value, name + "/" + key); !result) return result;
  return ::testing::AssertionSuccess();
}

/// The same for the whole of --report, which must have all categories of memory of all ranks.
inline ::testing::AssertionResult as_predicted(const nlohmann::json& report) {
  const nlohmann::json &memory = report.at("memory"), &ranks = report.at("layout").at("ranks");
  if (memory.empty() || memory.size() != ranks.get<size_t>())
    return ::testing::AssertionFailure() << memory.size() << " entries of " << ranks << " ranks";
  for (const nlohmann::json& of_rank : memory)
    for (const std::string_view name : kMemNames)
      if (!of_rank.at(std::string(name)).at("predicted").is_number())
        return ::testing::AssertionFailure() << name << " is not predicted";
  if (auto result = counted(memory, "memory"); !result) return result;
  return counted(report.at("extra"), "extra");
}

/// Measured bytes of a category.
inline int64_t measured(const nlohmann::json& report, Mem mem, size_t rank = 0) {
  const std::string name(kMemNames.at(static_cast<size_t>(mem)));
  return report.at("memory").at(rank).at(name).at("measured");
}

}  // namespace ladder::test
