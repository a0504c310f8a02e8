// What tests of chapter 22 run: models of two blocks with 8 experts, routed in each way.
#pragma once

#include <string>

#include "tests/common/same_trace.h"

namespace ladder::test {

inline const std::string k21 = "21_moe", k22 = "22_expert_parallel";

/// Tokens take 1, 2, 3 and 4 experts; from 3 on it matters in which order these are added.
inline const std::string kRoutings[] = {
    "--experts-per-token 1 --no-renormalize", "--balance-loss 0.5",
    "--experts-per-token 3 --z-loss 0.1 --shared-experts 1",
    "--experts-per-token 4 --router sigmoid --bias-rate 0.05",
    "--experts-per-token 3 --capacity 0.7 --balance-loss 0.5 --bias-rate 0.05"};
/// The last of them: with every way of balance, and tokens that are dropped.
inline const std::string kDropping = kRoutings[4];

class ExpertRuns : public SameTraceSmall {
 protected:
  static constexpr Range kShort = {0, 2};

  /// Chapter 21 on one rank.
  Trace one(const std::string& flags, Range range = kShort) const {
    return trace(k21, of_model(flags), range);
  }
  Trace shared(const std::string& flags, Range range = kShort) const {
    return trace(k22, of_model(flags), range);
  }
  static std::string of_model(const std::string& flags) {
    const bool given = flags.find("--model") != std::string::npos;
    return (given ? "" : "--model moe-nano ") + ("--batch 16 --clip 1 " + flags);
  }
};

}  // namespace ladder::test
