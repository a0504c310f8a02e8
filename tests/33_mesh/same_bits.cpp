// 33_mesh: a sum over the wrong group is seen (planted.cpp). Each row of the README's table of
// groups has its control here or in equal_runs.txt.
#include <string>

#include "tests/33_mesh/long_text.h"
#include "tests/common/same_trace.h"

namespace ladder::test {
namespace {

constexpr Range kShort = {0, 3};
const std::string kMesh =
    "--tp 2 --cp 2 --pp 2 --replicas 2 --ranks 16 --micro-batch 1 --threads 1 ";

class MeshControls : public SameTrace {
 protected:
  const std::string flags =
      "--model gpt2-124m --vocab 256 --layers 2 --channels 32 --heads 8 --seq-len 128 --batch 8 "
      "--clip 0.1 ";
  const Trace one = (lengthen(), trace("06_checkpointing", flags, kShort));

  void lengthen() const { write("text.txt", repeated(read("text.txt"), 6000)); }

  Trace planted(const std::string& mistake, const std::string& mesh = kMesh) const {
    return trace(Program("33_mesh", {LADDER_PLANTED, mistake}), flags + mesh, kShort);
  }
  static double number(const std::string& text) { return std::stod(text); }
};

TEST_F(MeshControls, WithoutAMistakeNothingDiffers) {
  EXPECT_TRUE(same_trace(one, planted("none")));
  EXPECT_TRUE(same_trace(one, planted("none", kMesh + "--sequence-parallel")));
}

// Gradients: over replicas, as a sum; of norms over tensor ranks, too, where these split tokens.
TEST_F(MeshControls, GradientsOfReplicasAndNorms) {
  EXPECT_TRUE(different_trace(one, planted("replicas")));
  // Clipping hides a mean: half a gradient, whose norm is half, is clipped to the same bits.
  const Trace mean = planted("mean");
  EXPECT_EQ(mean.steps.back().param_hash, one.steps.back().param_hash);
  EXPECT_EQ(number(mean.steps[0].grad_norm), number(one.steps[0].grad_norm) / 2);
  EXPECT_TRUE(different_trace(one, planted("norms", kMesh + "--sequence-parallel")));
  EXPECT_TRUE(same_trace(one, planted("norms"))) << "all tensor ranks have all tokens";
}

// Sequences: those of a micro-step are neighbors, because its gradients are summed first.
TEST_F(MeshControls, SequencesOfAMicroStep) {
  const std::string mesh = "--cp 2 --replicas 2 --ranks 8 --micro-batch 1 --threads 1 ";
  EXPECT_TRUE(same_trace(one, planted("none", mesh)));
  EXPECT_TRUE(different_trace(one, planted("sequences", mesh)));
}

// The loss is right of one group alone: over c, then a copy for all. A target counts once.
TEST_F(MeshControls, LossesAndTargets) {
  const Trace loss = planted("loss");
  EXPECT_EQ(loss.steps.back().param_hash, one.steps.back().param_hash);
  EXPECT_EQ(number(loss.steps[0].loss), 2 * number(one.steps[0].loss));
  // Of 2 x 2 x 2 context ranks, shards and replicas each has an eighth of the targets.
  const Trace targets = planted("targets", "--cp 2 --replicas 2 --ranks 8 --micro-batch 1 ");
  EXPECT_EQ(number(targets.steps[0].grad_norm), 8 * number(one.steps[0].grad_norm));
}

// The norm: over all that have the model once, and what all tensor ranks have counts once. The
// first loss is right, and the norm of a run alone looks like any other.
TEST_F(MeshControls, TheNormOfTheModel) {
  for (const std::string mistake : {"all_ranks", "one_stage", "copies"}) {
    const Trace wrong = planted(mistake);
    EXPECT_TRUE(different_trace(one, wrong)) << mistake;
    EXPECT_EQ(wrong.steps[0].loss, one.steps[0].loss) << mistake;
    EXPECT_NE(wrong.steps[0].grad_norm, one.steps[0].grad_norm) << mistake;
  }
}

}  // namespace
}  // namespace ladder::test
