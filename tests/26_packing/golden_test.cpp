// 26_packing against PyTorch in double with a block mask: lines that are cut, and words.
#include "tests/golden/golden.h"

namespace ladder::test {
namespace {

class GoldenPacking : public Golden, public ::testing::WithParamInterface<GoldenCase> {};
INSTANTIATE_TEST_SUITE_P(PyTorch, GoldenPacking, golden_cases({"packed", "packed_llama"}),
                         golden_name);

TEST_P(GoldenPacking, Says) {
  const auto [name, backend] = GetParam();
  expect_golden(name, backend);
}

class GoldenPackingControls : public Golden {};

TEST_F(GoldenPackingControls, OtherDocuments) { expect_other("packed", {{"end-of-text", 32}}); }

}  // namespace
}  // namespace ladder::test
