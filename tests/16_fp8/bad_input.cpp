// Bad input that 16_fp8 refuses, where its --precision takes a word more.
#include "tests/common/refusal.h"

namespace ladder::test {
namespace {

class BadFp8 : public Refusals {};
INSTANTIATE_TEST_SUITE_P(Refuses, BadFp8, ::testing::Values("16_fp8"), chapter_name);

TEST_P(BadFp8, Precision) {
  for (const std::string name : {"FP8", "e4m3", "int8", "8"})
    expect_refused(
        BadInput{"--precision " + name, "--precision: " + name + " not in {fp32,bf16,fp16,fp8}"});
}

TEST_P(BadFp8, Master) {
  expect_refused(BadInput{"--master 16", "takes every --precision but fp32"});
  expect_refused(BadInput{"--master 8 --precision fp8", "--master"});
}

}  // namespace
}  // namespace ladder::test
