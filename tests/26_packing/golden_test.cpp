// 26_packing against PyTorch in double with a block mask: words in rows, and lines that are cut.
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

TEST_F(GoldenPackingControls, OtherDocuments) { expect_other("packed", {{"end-of-text", 10}}); }
TEST_F(GoldenPackingControls, OtherWindow) { expect_other("packed_llama", {{"pack-window", 8}}); }
TEST_F(GoldenPackingControls, OtherRows) { expect_other("packed", {{"row-documents", 4}}); }

}  // namespace
}  // namespace ladder::test
