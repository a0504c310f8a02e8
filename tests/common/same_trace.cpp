#include "tests/common/same_trace.h"

#include <cmath>
#include <cstdlib>
#include <sstream>

#include <nlohmann/json.hpp>

#include "common/run/ending.h"
#include "common/save/directory.h"
#include "common/save/manifest.h"

namespace ladder::test {
namespace {

using ::testing::AssertionFailure;
using ::testing::AssertionResult;
using ::testing::AssertionSuccess;

/// A hexadecimal floating-point number, and neither NaN nor infinite.
bool is_finite(const std::string& text) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  return text.find("0x") != std::string::npos && *end == '\0' && std::isfinite(value);
}

bool is_hash(const std::string& text) {
  return text.size() == 16 && text.find_first_not_of("0123456789abcdef") == std::string::npos;
}

AssertionResult is_whole(const TraceStep& step) {
  for (const std::string& number : {step.loss, step.grad_norm, step.lr})
    if (!is_finite(number))
      return AssertionFailure() << "step " << step.step << ": '" << number << "' is not finite";
  if (!is_hash(step.param_hash))
    return AssertionFailure() << "step " << step.step << ": no hash '" << step.param_hash << "'";
  return AssertionSuccess();
}

AssertionResult same_step(const TraceStep& a, const TraceStep& b) {
  const auto same = [&](const char* field, const std::string& x, const std::string& y) {
    return x == y ? AssertionSuccess()
                  : AssertionFailure()
                        << "step " << a.step << ": " << field << " is " << x << " and " << y;
  };
  AssertionResult result = same("loss", a.loss, b.loss);
  if (result) result = same("grad_norm", a.grad_norm, b.grad_norm);
  if (result) result = same("lr", a.lr, b.lr);
  if (result) result = same("param_hash", a.param_hash, b.param_hash);
  return result;
}

}  // namespace

std::vector<TraceStep> parse_trace(const std::string& text) {
  std::istringstream lines(text);
  std::vector<TraceStep> steps;
  for (std::string line; std::getline(lines, line);) {
    const auto value = nlohmann::json::parse(line);
    steps.push_back({.step = value.at("step"),
                     .loss = value.at("loss"),
                     .grad_norm = value.at("grad_norm"),
                     .lr = value.at("lr"),
                     .param_hash = value.at("param_hash")});
  }
  return steps;
}

AssertionResult is_whole(const Trace& trace) {
  if (std::ssize(trace.steps) != trace.range.size())
    return AssertionFailure() << trace.steps.size() << " steps, not " << trace.range.size();
  for (int64_t i = 0; i < trace.range.size(); ++i) {
    const TraceStep& step = trace.steps[static_cast<size_t>(i)];
    if (step.step != trace.range.begin + i)
      return AssertionFailure() << "step " << step.step << ", not " << trace.range.begin + i;
    if (AssertionResult whole = is_whole(step); !whole) return whole;
  }
  return AssertionSuccess();
}

AssertionResult same_trace(const Trace& a, const Trace& b) {
  for (const Trace* trace : {&a, &b})
    if (AssertionResult whole = is_whole(*trace); !whole) return whole;
  if (!(a.range == b.range))
    return AssertionFailure() << "steps from " << a.range.begin << " to " << a.range.end
                              << " and from " << b.range.begin << " to " << b.range.end;
  for (size_t i = 0; i < a.steps.size(); ++i)
    if (AssertionResult same = same_step(a.steps[i], b.steps[i]); !same) return same;
  return AssertionSuccess();
}

AssertionResult different_trace(const Trace& a, const Trace& b) {
  for (const Trace* trace : {&a, &b})
    if (AssertionResult whole = is_whole(*trace); !whole) return whole;
  if (a.steps.empty() || b.steps.empty()) return AssertionFailure() << "no steps";
  if (a.steps.back().param_hash == b.steps.back().param_hash)
    return AssertionFailure() << "both end with the weights " << a.steps.back().param_hash;
  return AssertionSuccess();
}

AssertionResult ends_elsewhere(const Trace& a, const Trace& b) {
  if (a.steps.empty() || a.steps.size() != b.steps.size())
    return AssertionFailure() << a.steps.size() << " and " << b.steps.size() << " steps";
  if (a.steps.back().param_hash == b.steps.back().param_hash)
    return AssertionFailure() << "both end with the weights " << a.steps.back().param_hash;
  return AssertionSuccess();
}

AssertionResult near(const Trace& a, const Trace& b, double relative) {
  for (const Trace* trace : {&a, &b})
    if (AssertionResult whole = is_whole(*trace); !whole) return whole;
  for (size_t i = 0; i < a.steps.size(); ++i)
    for (const auto field : {&TraceStep::loss, &TraceStep::grad_norm}) {
      const double x = std::strtod((a.steps[i].*field).c_str(), nullptr),
                   y = std::strtod((b.steps[i].*field).c_str(), nullptr);
      if (!(std::abs(x - y) <= relative * y))
        return AssertionFailure() << "step " << i << ": " << x << " and " << y;
    }
  return AssertionSuccess();
}

Trace joined(const Trace& first, const Trace& then) {
  Trace all{.range = {first.range.begin, then.range.end}, .steps = first.steps};
  all.steps.insert(all.steps.end(), then.steps.begin(), then.steps.end());
  return all;
}

Trace SameTrace::trace(const Program& program, std::string_view flags, Range range) const {
  std::filesystem::remove(path("trace.jsonl"));  // never an older run's
  const Ended ended = train(
      program, std::string(flags) + " --trace trace.jsonl --steps " + std::to_string(range.end));
  // One that has learned nothing has a trace, too; train() knows whether it should have.
  if (ended.status != 0 && ended.status != kNotDone) return {.range = range, .steps = {}};
  return {.range = range, .steps = parse_trace(read("trace.jsonl"))};
}

void take_optimizer(const std::filesystem::path& dir, const std::filesystem::path& other) {
  const std::filesystem::path to = dir / "current", from = other / "current";
  std::filesystem::copy_file(from / kOptimizerFile, to / kOptimizerFile,
                             std::filesystem::copy_options::overwrite_existing);
  Manifest manifest = Manifest::read(to);
  manifest.files.at(kOptimizerFile) = Manifest::read(from).files.at(kOptimizerFile);
  manifest.write(to);
}

void set_state(const std::filesystem::path& dir, const std::string& key, nlohmann::json value) {
  Manifest manifest = Manifest::read(dir / "current");
  manifest.state.at(key) = std::move(value);
  manifest.write(dir / "current");
}

}  // namespace ladder::test
