// 20_context_parallel: ranks that split each sequence have the bits of 06 on one rank, and what
// goes wrong on purpose is seen. Models have 512 tokens, which 8 ranks can share.
#include <string>
#include <vector>

#include "tests/common/same_trace.h"

namespace ladder::test {
namespace {

constexpr Range kShort = {0, 2};

/// GPT-2's block, and LLaMA's with 8 heads in 4 groups.
const std::string kGpt =
    "--model gpt2-124m --vocab 256 --layers 2 --channels 32 --heads 8 --seq-len 512 ";
const std::string kLlama = "--model llama-nano --layers 2 --channels 32 --seq-len 512 ";

/// A SameTrace whose text is long enough to hold out a sequence of 512.
class ContextRuns : public SameTrace {
 protected:
  ContextRuns() { write("text.txt", read("text.txt") + read("text.txt").substr(0, 2000)); }

  /// Chapter 06 on one rank.
  Trace one(const std::string& flags, Range range = kShort) const {
    return trace("06_checkpointing", flags + " --clip 1", range);
  }
  Trace shared(const std::string& flags, Range range = kShort) const {
    return trace("20_context_parallel", flags + " --clip 1 --micro-batch 1", range);
  }
};

// Negative controls that are no rows of equal_runs.txt.

class ContextControls : public ContextRuns {
 protected:
  const std::string flags = kGpt + "--batch 2 ";
  const Trace alone = one(flags);

  Trace with(const std::string& fault) const {
    return shared(flags + "--cp 2 --context gather --fault " + fault);
  }
};

// Each rank must count the targets of all: with its own alone each target weighs cp times as much,
// and loss and gradient are cp times what they should be, to the bit, as cp is a power of two.
// Counted twice, targets make every gradient smaller.
TEST_F(ContextControls, TargetsCountOnce) {
  const auto first = [](const Trace& trace) { return trace.steps.front(); };
  const auto number = [](const std::string& text) { return std::stod(text); };
  const Trace own = with("skip:all_reduce:0"), twice = with("twice:all_reduce:0");
  ASSERT_TRUE(is_whole(own));
  ASSERT_TRUE(is_whole(twice));
  EXPECT_EQ(number(first(own).loss), 2 * number(first(alone).loss));
  EXPECT_EQ(number(first(own).grad_norm), 2 * number(first(alone).grad_norm));
  EXPECT_EQ(number(first(twice).grad_norm), number(first(alone).grad_norm) / 2);
}

// What no message can show (planted.cpp). The loss of the first step looks as it should, so only a
// comparison of bits can tell.
TEST_F(ContextControls, WhatARankDoesWithItsOwnTokens) {
  const auto planted = [&](const std::string& mistake, const std::string& model) {
    return trace(Program("20_context_parallel", {LADDER_PLANTED, mistake}),
                 model + "--batch 2 --cp 2 --clip 1 --micro-batch 1", kShort);
  };
  for (const std::string& model : {kGpt, kLlama}) {
    const Trace sound = one(model + "--batch 2");
    EXPECT_TRUE(same_trace(sound, planted("none", model))) << model;
    for (const std::string mistake : {"positions", "targets"}) {
      const Trace wrong = planted(mistake, model);
      EXPECT_TRUE(different_trace(sound, wrong)) << model << mistake;
      EXPECT_NEAR(std::stod(wrong.steps[0].loss), std::stod(sound.steps[0].loss), 0.01) << model;
    }
  }
  // The weights of this one are right, but not what is said of the loss.
  const Trace times_cp = planted("loss", kGpt);
  EXPECT_EQ(times_cp.steps.back().param_hash, alone.steps.back().param_hash);
  EXPECT_EQ(std::stod(times_cp.steps[0].loss), 2 * std::stod(alone.steps[0].loss));
}

}  // namespace
}  // namespace ladder::test
