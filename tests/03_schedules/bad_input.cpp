// Bad input that every chapter from 03 on refuses.
#include "tests/common/refusal.h"

namespace ladder::test {
namespace {

class BadSchedule : public Refusals {};
INSTANTIATE_TEST_SUITE_P(Refuses, BadSchedule,
                         ::testing::ValuesIn(some_chapters_from("03_schedules")), chapter_name);

TEST_P(BadSchedule, Flags) {
  expect_refused({{"--schedule step", "--schedule"},
                  {"--warmup -1", "--warmup must be at least 0, not -1"},
                  {"--warmup-tokens -1", "--warmup-tokens must be from 0 to 1099511627776, not -1"},
                  {"--warmup-tokens 9000000000000000000", "--warmup-tokens must be from 0 to"},
                  {"--warmup 2 --warmup-tokens 100", "--warmup-tokens"},
                  {"--min-lr 1.5", "--min-lr must be in [0, 1], not 1.5"},
                  {"--min-lr -0.1", "--min-lr must be in [0, 1], not -0.1"},
                  {"--min-lr nan", "--min-lr must be in [0, 1], not nan"},
                  {"--decay-steps -1", "--decay-steps must be at least 0, not -1"},
                  {"--decay-steps 5", "--decay-steps is for --schedule linear, cosine or wsd"},
                  {"--schedule cosine --wsd-decay cosine", "--wsd-decay is for --schedule wsd"},
                  {"--schedule exponential", "not in {constant,linear,cosine,wsd}"},
                  {"--schedule wsd --wsd-decay exponential --min-lr 0", "legal is a --min-lr"},
                  {"--wsd-decay sudden", "not in {linear,cosine,exponential}"}});
}

}  // namespace
}  // namespace ladder::test
