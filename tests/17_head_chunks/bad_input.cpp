// Bad input that 17_head_chunks refuses.
#include "tests/common/refusal.h"

namespace ladder::test {
namespace {

class BadHeadChunk : public Refusals {};
INSTANTIATE_TEST_SUITE_P(Refuses, BadHeadChunk, ::testing::Values("17_head_chunks"), chapter_name);

TEST_P(BadHeadChunk, HeadChunk) {
  const std::string legal = "legal are 0 (a micro-batch at once) and powers of two";
  for (const std::string chunk : {"-1", "3", "12"})
    expect_refused(BadInput{"--head-chunk " + chunk, "--head-chunk " + chunk + "; " + legal});
  expect_refused(BadInput{"--head-chunk many", "--head-chunk"});
}

}  // namespace
}  // namespace ladder::test
