// All tests of operations with our own kernels, whose accesses are watched. Prints what races, and
// for each test what was moved. The operands of Refused are zeros: there all rows of experts are
// row 0, which is legal in no run, and whoever writes them meets.
#include <string_view>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "kernels/cuda/on_cpu/watch.h"

namespace ladder::test {
namespace {

class Listener : public testing::EmptyTestEventListener {
  void OnTestEnd(const testing::TestInfo& test) override {
    const on_cpu::Watched seen = on_cpu::take_watched();
    fmt::print("{}.{}: read {} B, written {} B, shared turns {}, of them conflicts {}, races {}\n",
               test.test_suite_name(), test.name(), seen.bytes_read, seen.bytes_written,
               seen.shared_turns, seen.bank_conflicts, seen.race_count);
    for (const std::string& race : seen.races) fmt::print("  RACE {}\n", race);
    if (std::string_view(test.test_suite_name()) == "Refused") return;
    EXPECT_EQ(seen.race_count, 0);
    EXPECT_EQ(seen.float_atomics, 0);
  }
};

}  // namespace
}  // namespace ladder::test

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  testing::UnitTest::GetInstance()->listeners().Append(new ladder::test::Listener);
  return RUN_ALL_TESTS();
}
