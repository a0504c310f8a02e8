// same_trace(a, b): the harness of every equivalence. Two runs of chapter programs had the same
// bits if the lines of their --trace are equal as text.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/tree.h"
#include "tests/common/programs.h"

namespace ladder::test {

/// One line of --trace. The numbers stay text, hexadecimal: equal text means equal bits.
struct TraceStep {
  int64_t step;
  std::string loss, grad_norm, lr, param_hash;
};

/// The trace of a run, and which steps it should have.
struct Trace {
  Range range;
  std::vector<TraceStep> steps;
};

/// The lines of a --trace file. @throws if one is not as the design has it
std::vector<TraceStep> parse_trace(const std::string& text);

/// Success if the trace has all steps of its range, in order, and all its numbers are finite.
::testing::AssertionResult is_whole(const Trace& trace);

/// Success if both are whole and equal in loss, grad_norm, lr and param_hash of every step. Else
/// names the first step and field that differ.
::testing::AssertionResult same_trace(const Trace& a, const Trace& b);

/// For negative controls. Success if both are whole and the final weights differ. A run that broke
/// off would prove nothing.
::testing::AssertionResult different_trace(const Trace& a, const Trace& b);

/// The same where numbers may be NaN: a rank may have computed with what it never got. Success if
/// both have as many steps and the final weights differ.
::testing::AssertionResult ends_elsewhere(const Trace& a, const Trace& b);

/// Success if losses and norms of all steps differ by at most that share of b's. NaN fails.
::testing::AssertionResult near(const Trace& a, const Trace& b, double relative);

/// The trace of one run after the other.
Trace joined(const Trace& first, const Trace& then);

/// How many steps a run has if the test does not say otherwise, and half of them.
constexpr int64_t kSteps = 4, kHalf = kSteps / 2;

/// A test that compares traces.
class SameTrace : public Programs {
 protected:
  /// The trace of train() up to step range.end. A run that begins later takes a --load.
  Trace trace(const Program& program, std::string_view flags, Range range = {0, kSteps}) const;
};

/// A SameTrace with two layers, for tests that depend on no size.
class SameTraceSmall : public SameTrace {
 protected:
  Trace trace(const Program& program, std::string_view flags, Range range = {0, kSteps}) const {
    return SameTrace::trace(program, std::string(flags) + " --layers 2", range);
  }
};

/// Makes the checkpoint `dir` one with the optimizer state of the checkpoint `other`.
void take_optimizer(const std::filesystem::path& dir, const std::filesystem::path& other);

/// Changes one entry of the state that the checkpoint `dir` keeps for the chapter.
void set_state(const std::filesystem::path& dir, const std::string& key, nlohmann::json value);

}  // namespace ladder::test
