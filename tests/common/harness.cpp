// The harness itself: what same_trace accepts, and what it must not accept; and the pairwise
// choice, which has no illegal row, no pair missing, and not all rows.
#include <algorithm>
#include <functional>
#include <stdexcept>
#include <string_view>

#include "tests/common/memory.h"
#include "tests/common/pairwise.h"
#include "tests/common/programs.h"
#include "tests/common/same_trace.h"

namespace ladder::test {
namespace {

Trace two_steps() {
  return {.range = {4, 6},
          .steps = {{4, "0x1.62p+2", "0x1.1p+3", "0x1p-10", "00000000deadbeef"},
                    {5, "0x1.52p+2", "0x1.2p+3", "0x0p+0", "0123456789abcdef"}}};
}

Trace changed(const std::function<void(Trace&)>& change) {
  Trace trace = two_steps();
  change(trace);
  return trace;
}

std::string message(const ::testing::AssertionResult& result) { return result.message(); }

TEST(SameTrace, EqualTracesAreEqual) {
  EXPECT_TRUE(same_trace(two_steps(), two_steps()));
  EXPECT_FALSE(different_trace(two_steps(), two_steps()));
}

TEST(SameTrace, NamesTheStepAndTheField) {
  const auto differs = [](auto change) {
    return message(same_trace(two_steps(), changed(change)));
  };
  EXPECT_EQ(differs([](Trace& t) { t.steps[0].loss = "0x1.63p+2"; }),
            "step 4: loss is 0x1.62p+2 and 0x1.63p+2");
  EXPECT_EQ(differs([](Trace& t) { t.steps[1].grad_norm = "0x1p+3"; }),
            "step 5: grad_norm is 0x1.2p+3 and 0x1p+3");
  EXPECT_EQ(differs([](Trace& t) { t.steps[1].lr = "-0x0p+0"; }),
            "step 5: lr is 0x0p+0 and -0x0p+0");
  EXPECT_EQ(differs([](Trace& t) { t.steps[0].param_hash[15] = 'e'; }),
            "step 4: param_hash is 00000000deadbeef and 00000000deadbeee");
}

TEST(SameTrace, RefusesWhatIsNoWholeTrace) {
  // Both sides are broken in the same way. The texts are equal, but there is no equality.
  const auto both = [](auto change) {
    return message(same_trace(changed(change), changed(change)));
  };
  EXPECT_EQ(both([](Trace& t) { t.steps[1].loss = "nan"; }), "step 5: 'nan' is not finite");
  EXPECT_EQ(both([](Trace& t) { t.steps[1].loss = "-nan"; }), "step 5: '-nan' is not finite");
  EXPECT_EQ(both([](Trace& t) { t.steps[0].grad_norm = "inf"; }), "step 4: 'inf' is not finite");
  EXPECT_EQ(both([](Trace& t) { t.steps[0].lr = "0x1p+2000"; }),
            "step 4: '0x1p+2000' is not finite");
  EXPECT_EQ(both([](Trace& t) { t.steps[0].lr = ""; }), "step 4: '' is not finite");
  EXPECT_EQ(both([](Trace& t) { t.steps[0].param_hash = ""; }), "step 4: no hash ''");
  EXPECT_EQ(both([](Trace& t) { t.steps.pop_back(); }), "1 steps, not 2");
  EXPECT_EQ(both([](Trace& t) { t.steps.clear(); }), "0 steps, not 2");
  EXPECT_EQ(both([](Trace& t) { t.steps[1].step = 4; }), "step 4, not 5");
  EXPECT_EQ(both([](Trace& t) { t.steps[0].step = 0; }), "step 0, not 4");
}

TEST(SameTrace, RangesMustAgree) {
  Trace later = two_steps();
  later.range = {5, 7};
  for (TraceStep& step : later.steps) ++step.step;
  EXPECT_EQ(message(same_trace(two_steps(), later)), "steps from 4 to 6 and from 5 to 7");
}

TEST(DifferentTrace, WantsOtherWeightsAtTheEndOfWholeRuns) {
  const auto other = [](auto change) { return different_trace(two_steps(), changed(change)); };
  EXPECT_TRUE(other([](Trace& t) { t.steps[1].param_hash[0] = '1'; }));
  EXPECT_FALSE(other([](Trace& t) { t.steps[0].param_hash[0] = '1'; }));
  EXPECT_FALSE(other([](Trace& t) { t.steps[1].loss = "0x1p+2"; }));
  EXPECT_FALSE(other([](Trace& t) { t.steps.clear(); }));
  EXPECT_FALSE(other([](Trace& t) { t.steps[1].param_hash = ""; }));
}

TEST(JoinedTrace, IsOneOnlyIfTheSecondGoesOnWhereTheFirstEnds) {
  const Trace whole = two_steps();
  const Trace a{.range = {4, 5}, .steps = {whole.steps[0]}};
  const Trace b{.range = {5, 6}, .steps = {whole.steps[1]}};
  EXPECT_TRUE(same_trace(joined(a, b), whole));
  EXPECT_FALSE(same_trace(joined(a, a), whole));
  EXPECT_FALSE(is_whole(joined(b, a)));
}

TEST(AsPredicted, SeesABytesDifferenceAndWhatIsMissing) {
  nlohmann::json right{{"layout", {{"ranks", 1}}},
                       {"extra", {{"sent", {{"predicted", 1}, {"measured", 1}}}}}};
  for (const std::string_view name : kMemNames)
    right["memory"][0][std::string(name)] = {{"predicted", 8}, {"measured", 8}};
  EXPECT_TRUE(as_predicted(right));
  nlohmann::json wrong = right, lost = right, other = right;
  wrong["memory"][0]["Workspace"]["measured"] = 9;
  EXPECT_FALSE(as_predicted(wrong));
  lost["memory"][0]["Workspace"]["predicted"] = nullptr;
  EXPECT_FALSE(as_predicted(lost));
  other["extra"]["sent"]["measured"] = 2;
  EXPECT_FALSE(as_predicted(other));
}

const std::vector<Factor> kFactors = {{"--a 0", "--a 1", "--a 2"},
                                      {"--b 0", "--b 1", "--b 2", "--b 3"},
                                      {"", "--c"},
                                      {"--d 0", "--d 1", "--d 2"}};

/// Whether any of `rows` has value v of factor i and value w of factor j.
bool meet(const std::vector<Row>& rows, size_t i, size_t v, size_t j, size_t w) {
  return std::any_of(rows.begin(), rows.end(),
                     [&](const Row& row) { return row[i] == v && row[j] == w; });
}

TEST(Pairwise, EveryPairOccurs) {
  const std::vector<Row> rows = covering(kFactors, 2, [](const Row&) { return true; });
  for (size_t i = 0; i < kFactors.size(); ++i)
    for (size_t j = i + 1; j < kFactors.size(); ++j)
      for (size_t v = 0; v < kFactors[i].size(); ++v)
        for (size_t w = 0; w < kFactors[j].size(); ++w)
          EXPECT_TRUE(meet(rows, i, v, j, w)) << kFactors[i][v] << " " << kFactors[j][w];
  EXPECT_GE(rows.size(), 12u);  // as a and b alone
  EXPECT_LT(rows.size(), 24u);  // of 72
}

// a = 2 goes with b = 0 only. So it meets no other b, and all that it may meet.
TEST(Pairwise, WhatIsIllegalIsNotChosenAndWhatIsLeftIs) {
  const std::vector<Row> rows = covering(
      kFactors, 2, [](const Row& row) { return row[0] != 2 || row[1] == 0 || row[1] == kOpen; });
  EXPECT_TRUE(meet(rows, 0, 2, 1, 0));
  for (const size_t b : {1, 2, 3}) EXPECT_FALSE(meet(rows, 0, 2, 1, b));
  for (const size_t d : {0, 1, 2}) EXPECT_TRUE(meet(rows, 0, 2, 3, d));
  for (const size_t b : {1, 2, 3}) EXPECT_TRUE(meet(rows, 0, 1, 1, b));
}

}  // namespace
}  // namespace ladder::test
