// 07 to 10, 18 and 30, what their tables of equal runs cannot say: steps that overflow; and of 07,
// that faults are told.
#include "tests/common/ranks.h"
#include "tests/common/refusal.h"

namespace ladder::test {
namespace {

class RanksControls : public Programs, public ::testing::WithParamInterface<std::string> {};
INSTANTIATE_TEST_SUITE_P(DataParallel, RanksControls, ::testing::ValuesIn(kDataParallel),
                         chapter_name);

// Every rank skips the step, also if only one sees the overflow. The norm is NaN then.
TEST_P(RanksControls, Overflows) {
  must_end_with(3);  // no step is taken
  const auto lines = [&](const std::string& chapter, const std::string& layout) {
    std::filesystem::remove(path("trace.jsonl"));
    const Ended ended = train(chapter,
                              "--precision fp16 --loss-scale 16777216 --layers 2 --batch 8 "
                              "--trace trace.jsonl " +
                                  layout);
    EXPECT_NE(ended.out.find("skipped, overflow"), std::string::npos) << chapter;
    return read("trace.jsonl");
  };
  const std::string one = lines("06_checkpointing", "");
  EXPECT_NE(one.find("nan"), std::string::npos);
  EXPECT_EQ(lines(GetParam(), "--ranks 2 --micro-batch 1"), one);
  EXPECT_EQ(lines(GetParam(), "--ranks 4"), one);
}

using Faulty = Programs;

// A fault that never comes does not pass for one that nobody saw.
TEST_F(Faulty, AFaultIsTold) {
  const auto told = [&](const std::string& flags) {
    return train("07_ddp", "--batch 8 --bucket-mb 0.5 --layers 2 --steps 1 " + flags).err;
  };
  const std::string never = " never happened: ";
  for (const std::string count : {"1", "2"})
    EXPECT_EQ(told("--fault skip:all_reduce:100000 --ranks " + count)
                  .find("note: --fault skip:all_reduce:100000" + never),
              0)
        << count;
  EXPECT_EQ(told("--ranks 2 --fault skip:recv:100000")
                .find("note: --fault skip:recv:100000" + never + "no rank received more than "),
            0);
  // One that comes is told, too, whether it is seen or not.
  const std::string fault = "--fault skip:all_reduce:1";
  EXPECT_EQ(told("--ranks 2 " + fault).find("note: " + fault + " happened: a group of ranks had "),
            0);
  EXPECT_EQ(told("--ranks 2"), "");
}

}  // namespace
}  // namespace ladder::test
