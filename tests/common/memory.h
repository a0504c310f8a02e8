// The promise "claims are measured", for memory: what a program's formula predicts is what its
// arena counted, to the byte.
#pragma once

#include <string>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "kernels/arena.h"
#include "tests/common/programs.h"

namespace ladder::test {

/// A test of runs that hold out little text: validation takes most of the time of one step.
class MemoryRuns : public Programs {
 protected:
  MemoryRuns() { write("text.txt", read("text.txt").substr(0, kTextBytes)); }

 private:
  static constexpr size_t kTextBytes = 400;
};

/// Success if --report has all categories of all ranks and predicted equals measured in each;
/// names the first that differs.
inline ::testing::AssertionResult as_predicted(const nlohmann::json& report) {
  const nlohmann::json &memory = report.at("memory"), &ranks = report.at("layout").at("ranks");
  if (memory.empty() || memory.size() != ranks.get<size_t>())
    return ::testing::AssertionFailure() << memory.size() << " entries of " << ranks << " ranks";
  for (const nlohmann::json& of_rank : memory)
    for (const std::string_view name : kMemNames) {
      const auto& bytes = of_rank.at(std::string(name));
      const int64_t predicted = bytes.at("predicted"), measured = bytes.at("measured");
      if (predicted != measured)
        return ::testing::AssertionFailure()
               << "rank " << of_rank.at("rank") << ", " << name << ": " << predicted
               << " predicted, " << measured << " measured";
    }
  return ::testing::AssertionSuccess();
}

/// Measured bytes of a category.
inline int64_t measured(const nlohmann::json& report, Mem mem, size_t rank = 0) {
  const std::string name(kMemNames.at(static_cast<size_t>(mem)));
  return report.at("memory").at(rank).at(name).at("measured");
}

}  // namespace ladder::test
