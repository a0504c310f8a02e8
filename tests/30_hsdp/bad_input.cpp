// Bad input that chapter 30 refuses.
#include "tests/common/refusal.h"

namespace ladder::test {
namespace {

class BadHsdp : public Refusals {};
INSTANTIATE_TEST_SUITE_P(Refuses, BadHsdp, ::testing::Values("30_hsdp"), chapter_name);

TEST_P(BadHsdp, Replicas) {
  const std::string ranks = "--ranks 4 --batch 8 ";
  expect_refused({{ranks + "--replicas 3",
                   "--replicas 3 does not divide 4 ranks; legal are the divisors of 4"},
                  {ranks + "--replicas 8", "--replicas 8 does not divide 4 ranks"},
                  {ranks + "--replicas 0", "--replicas 0 does not divide 4 ranks"},
                  {ranks + "--replicas two", "--replicas"},
                  {ranks + "--replicas 2 --optimizer adafactor", "--optimizer adafactor"}});
}

}  // namespace
}  // namespace ladder::test
