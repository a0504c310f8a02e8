// Checkpoints of chapter 13 do not know the mesh: they go from any layout to any other, and to and
// from the chapters before.
#include "tests/common/same_trace.h"

namespace ladder::test {
namespace {

class MeshCheckpoints : public SameTrace {
 protected:
  Trace half(const std::string& chapter, const std::string& ours) const {
    return trace(chapter, common + ours, {0, kHalf});
  }
  Trace rest(const std::string& chapter, const std::string& ours) const {
    return trace(chapter, common + ours, {kHalf, kSteps});
  }
  void expect_equal(const std::string& a, const std::string& b) const {
    for (const std::string file : {"/model.safetensors", "/current/optimizer.safetensors"})
      EXPECT_TRUE(read(a + file) == read(b + file)) << a << file;  // a diff of them takes long
  }

  const std::string common = "--layers 4 --clip 1 --batch 8 --micro-batch 1 ";
  const std::string cube = "--tp 2 --dp 2 --pp 2 --pipeline interleaved ";
};

TEST_F(MeshCheckpoints, GoFromMeshToMesh) {
  const Trace whole = trace("06_checkpointing", common);
  const Trace first = half("13_3d_parallel", cube + "--save cube");
  for (const std::string axes : {"", "--tp 4 --pp 2", "--dp 8", "--dp 2 --pp 4 --pipeline zb-h1",
                                 "--tp 8 --sequence-parallel"})
    EXPECT_TRUE(same_trace(whole, joined(first, rest("13_3d_parallel", "--load cube " + axes))))
        << axes;
}

TEST_F(MeshCheckpoints, GoToAndFromTheChaptersBefore) {
  const Trace whole = trace("06_checkpointing", common);
  const Trace first = half("13_3d_parallel", cube + "--save cube");
  for (const auto& [chapter, theirs] : {std::pair{"06_checkpointing", ""},
                                        {"08_zero1", "--ranks 4 "},
                                        {"11_tensor_parallel", "--tp 4 "},
                                        {"12_pipeline_parallel", "--pp 4 "}}) {
    const Trace other = half(chapter, std::string(theirs) + "--save " + chapter);
    EXPECT_TRUE(same_trace(first, other)) << chapter;
    expect_equal("cube", chapter);
    EXPECT_TRUE(
        same_trace(whole, joined(first, rest(chapter, theirs + std::string("--load cube")))))
        << chapter;
    EXPECT_TRUE(same_trace(
        whole, joined(other, rest("13_3d_parallel", cube + "--load " + std::string(chapter)))))
        << chapter;
  }
}

// Where axes are not equal, a rank that is taken for one of another place has other weights.
TEST_F(MeshCheckpoints, OfUnequalAxes) {
  half("06_checkpointing", "--save one");
  for (const auto& [axes, mesh] : {std::pair{"--dp 2 --pp 2", "1x2x2"},
                                   {"--tp 2 --dp 2", "2x2x1"},
                                   {"--tp 2 --dp 2 --pp 4", "2x2x4"}}) {
    half("13_3d_parallel", axes + std::string(" --save ") + mesh);
    expect_equal(mesh, "one");
  }
}

// The FP32 weights behind 16-bit ones lie in shards.
TEST_F(MeshCheckpoints, HoldTheMasterOfNarrowWeights) {
  const std::string narrow = "--precision bf16 ";
  const Trace whole = trace("06_checkpointing", common + narrow);
  const Trace first = half("13_3d_parallel", narrow + "--dp 2 --pp 2 --save mesh");
  EXPECT_TRUE(same_trace(first, half("06_checkpointing", narrow + "--save one")));
  expect_equal("mesh", "one");
  EXPECT_TRUE(same_trace(
      whole, joined(first, rest("13_3d_parallel", narrow + "--dp 4 --pp 2 --load mesh"))));
}

}  // namespace
}  // namespace ladder::test
