// Learning, as a smoke test: 60 steps of `tiny`, shortened, on the tests' text.
#include <cmath>
#include <ostream>
#include <string>

#include "tests/common/same_trace.h"

namespace ladder::test {
namespace {

/// Give a learning rate at which any seed gets below 1.9. At a higher one the last bits of a kernel
/// decide on which side of the bar a run ends.
struct Learner {
  std::string name, chapter, flags;
};
void PrintTo(const Learner& learner, std::ostream* out) { *out << learner.flags; }

const Learner kLearners[] = {
    {"Plain", "01_sgd", "--lr 0.1"},
    {"Momentum", "01_sgd", "--lr 0.01 --momentum 0.9"},
    {"Nesterov", "01_sgd", "--lr 0.01 --momentum 0.9 --nesterov"},
    {"Adam", "02_adamw", "--optimizer adam --lr 2e-3"},
    {"AdamW", "02_adamw", "--optimizer adamw --lr 1e-3"},
    {"Lion", "32_optimizers", "--optimizer lion --lr 5e-4"},
    {"Adafactor", "32_optimizers", "--optimizer adafactor --lr 1e-3"},
    {"AdamW8bit", "32_optimizers", "--optimizer adamw8bit --lr 1e-3"},
    {"WsdWithARamp", "03_schedules", "--lr 2e-3 --schedule wsd --warmup 5"},
    {"EverythingOn", "04_clipping", "--lr 2e-3 --clip 1 --micro-batch 2"},
    {"EverythingOn", "14_stability",
     "--lr 2e-3 --clip 1 --agc 0.2 --spike-guard 6 --micro-batch 2"}};

class Learning : public SameTrace, public ::testing::WithParamInterface<Learner> {};
INSTANTIATE_TEST_SUITE_P(All, Learning, ::testing::ValuesIn(kLearners), [](const auto& test) {
  return "ch" + test.param.chapter + "_" + test.param.name;
});

/// The loss begins at about ln 256 = 5.5, as that of a model that knows nothing does, and ends
/// below 2.2 nats on held-out text: who knows the letters' frequencies and no more has 2.8.
TEST_P(Learning, EndsBelowWhatFrequenciesTell) {
  const std::string small = " --model tiny --seq-len 32 --batch 8 --report report.json";
  const Trace run = trace(GetParam().chapter, GetParam().flags + small, {0, 60});
  ASSERT_TRUE(is_whole(run));
  const double first = std::strtod(run.steps.front().loss.c_str(), nullptr);
  EXPECT_NEAR(first, std::log(256), 0.2);
  const double last = nlohmann::json::parse(read("report.json")).at("val_loss");
  EXPECT_LT(last, 2.2);
  EXPECT_GT(last, 0.1);
}

}  // namespace
}  // namespace ladder::test
