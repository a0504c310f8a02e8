// The lists of small pipelines, written out by hand after the figures of the papers; and slots: no
// two micro-batches that are in flight together share one, and no slot is spare.
#include "chapters/12_pipeline_parallel/pipeline.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "chapters/12_pipeline_parallel/proof/pipeline_check.h"
#include "chapters/12_pipeline_parallel/stage.h"
#include "tests/12_pipeline_parallel/all_pipelines.h"
#include "tests/common/run_files.h"

namespace ladder::test {
namespace {

/// One stage's list, as "<a0 F0 >a0": < receives, > sends, a for activations, g for gradients, and
/// ' for the second chunk.
std::string text(const std::vector<Action>& list) {
  constexpr std::array kShort{"F", "B", "I", "W", "<a", ">a", "<g", ">g"};
  std::string all;
  for (const Action& a : list)
    all += fmt::format("{}{}{}{}", all.empty() ? "" : " ", kShort[static_cast<size_t>(a.what)],
                       a.micro, a.chunk == 1 ? "'" : "");
  return all;
}

TEST(Pipeline, Gpipe) {
  const Pipeline pipeline = make_pipeline(PipelineKind::GPipe, 2, 1, 4);
  EXPECT_EQ(text(pipeline.lists[0]), "F0 >a0 F1 >a1 F2 >a2 F3 >a3 <g0 B0 <g1 B1 <g2 B2 <g3 B3");
  EXPECT_EQ(text(pipeline.lists[1]), "<a0 F0 <a1 F1 <a2 F2 <a3 F3 B0 >g0 B1 >g1 B2 >g2 B3 >g3");
}

TEST(Pipeline, OneForwardOneBackward) {
  const Pipeline pipeline = make_pipeline(PipelineKind::OneFOneB, 2, 1, 4);
  EXPECT_EQ(text(pipeline.lists[0]), "F0 >a0 F1 >a1 <g0 B0 F2 >a2 <g1 B1 F3 >a3 <g2 B2 <g3 B3");
  EXPECT_EQ(text(pipeline.lists[1]), "<a0 F0 B0 >g0 <a1 F1 B1 >g1 <a2 F2 B2 >g2 <a3 F3 B3 >g3");
}

TEST(Pipeline, Interleaved) {
  const Pipeline pipeline = make_pipeline(PipelineKind::Interleaved, 2, 2, 4);
  EXPECT_EQ(text(pipeline.lists[0]),
            "F0 >a0 F1 >a1 <a0' F0' >a0' <a1' F1' >a1' "
            "F2 >a2 <g0' B0' >g0' F3 >a3 <g1' B1' >g1' <a2' F2' >a2' <g0 B0 <a3' F3' >a3' <g1 B1 "
            "<g2' B2' >g2' <g3' B3' >g3' <g2 B2 <g3 B3");
  EXPECT_EQ(text(pipeline.lists[1]),
            "<a0 F0 >a0 <a1 F1 >a1 "
            "<a0' F0' B0' >g0' <a1' F1' B1' >g1' <a2 F2 >a2 <g0 B0 >g0 <a3 F3 >a3 <g1 B1 >g1 "
            "<a2' F2' B2' >g2' <a3' F3' B3' >g3' <g2 B2 >g2 <g3 B3 >g3");
}

TEST(Pipeline, ZbH1) {
  const Pipeline pipeline = make_pipeline(PipelineKind::ZbH1, 2, 1, 4);
  EXPECT_EQ(text(pipeline.lists[0]),
            "F0 >a0 F1 >a1 <g0 I0 W0 F2 >a2 <g1 I1 W1 F3 >a3 <g2 I2 W2 <g3 I3 W3");
  EXPECT_EQ(text(pipeline.lists[1]),
            "<a0 F0 I0 >g0 <a1 F1 I1 >g1 W0 <a2 F2 I2 >g2 W1 <a3 F3 I3 >g3 W2 W3");
}

TEST(Pipeline, FewerMicroBatchesThanStages) {
  const Pipeline one = make_pipeline(PipelineKind::OneFOneB, 4, 1, 2),
                 zb = make_pipeline(PipelineKind::ZbH1, 4, 1, 2);
  EXPECT_EQ(text(one.lists[0]), "F0 >a0 F1 >a1 <g0 B0 <g1 B1");
  EXPECT_EQ(text(one.lists[2]), "<a0 F0 >a0 <a1 F1 >a1 <g0 B0 >g0 <g1 B1 >g1");
  EXPECT_EQ(text(one.lists[3]), "<a0 F0 B0 >g0 <a1 F1 B1 >g1");
  // Once no forward is left, W waits no longer: stage 1 does not hold it back by one.
  EXPECT_EQ(text(zb.lists[1]), "<a0 F0 >a0 <a1 F1 >a1 <g0 I0 >g0 W0 <g1 I1 >g1 W1");
  EXPECT_EQ(text(zb.lists[2]), "<a0 F0 >a0 <a1 F1 >a1 <g0 I0 >g0 <g1 I1 >g1 W0 W1");
  EXPECT_EQ(text(zb.lists[3]), "<a0 F0 I0 >g0 <a1 F1 I1 >g1 W0 W1");
}

TEST(Pipeline, OneStageSendsNothing) {
  EXPECT_EQ(text(make_pipeline(PipelineKind::GPipe, 1, 2, 3).lists[0]), "F0 F1 F2 B0 B1 B2");
  EXPECT_EQ(text(make_pipeline(PipelineKind::OneFOneB, 1, 2, 3).lists[0]), "F0 B0 F1 B1 F2 B2");
  EXPECT_EQ(text(make_pipeline(PipelineKind::Interleaved, 1, 2, 3).lists[0]), "F0 B0 F1 B1 F2 B2");
  EXPECT_EQ(text(make_pipeline(PipelineKind::ZbH1, 1, 2, 3).lists[0]),
            "F0 I0 W0 F1 I1 W1 F2 I2 W2");
}

TEST(Pipeline, OnlyInterleavedHasChunks) {
  for_all_pipelines([](const Pipeline& pipeline) {
    const bool many = pipeline.kind == PipelineKind::Interleaved && pipeline.stages > 1;
    EXPECT_EQ(pipeline.chunks > 1, many) << title(pipeline);
    EXPECT_EQ(std::ssize(pipeline.lists), pipeline.stages) << title(pipeline);
  });
}

TEST(Pipeline, MessagesGoToNeighborsCountedRound) {
  EXPECT_EQ(peer(3, Do::SendActivation, 4), 0);
  EXPECT_EQ(peer(0, Do::RecvActivation, 4), 3);
  EXPECT_EQ(peer(0, Do::SendGradient, 4), 3);
  EXPECT_EQ(peer(3, Do::RecvGradient, 4), 0);
  EXPECT_EQ(peer(1, Do::SendActivation, 4), 2);
  EXPECT_EQ(peer(1, Do::SendGradient, 4), 0);
}

TEST(Pipeline, SaysWhatItIs) {
  EXPECT_EQ(to_string(Action{Do::Forward, 3, 0}), "Forward of micro-batch 3, chunk 0");
  EXPECT_EQ(to_string(Action{Do::SendGradient, 0, 1}), "SendGradient of micro-batch 0, chunk 1");
}

TEST(Pipeline, RefusesWhatCannotBe) {
  EXPECT_USER_ERROR(make_pipeline(PipelineKind::GPipe, 0, 1, 4), "at least 1 stage, not 0");
  EXPECT_USER_ERROR(make_pipeline(PipelineKind::ZbH1, 2, 1, 0), "at least 1 micro-batch, not 0");
  EXPECT_USER_ERROR(make_pipeline(PipelineKind::Interleaved, 2, 1, 4),
                    "--chunks of at least 2, not 1");
  EXPECT_USER_ERROR(make_pipeline(PipelineKind::Interleaved, 4, 2, 6),
                    "legal are 4, 8, 12, ... micro-batches");
  EXPECT_USER_ERROR(make_pipeline(PipelineKind::Interleaved, 4, 2, 2),
                    "legal are 4, 8, 12, ... micro-batches");
}

TEST(PipelineSlots, AreOfOneMicroBatchAtATimeAndAsManyAsInFlight) {
  for_all_pipelines([](const Pipeline& pipeline) {
    for (int64_t s = 0; s < pipeline.stages; ++s) {
      const std::vector<Action>& list = pipeline.lists[s];
      const Slots slots = slots_of(list, pipeline.chunks, pipeline.micros);
      std::map<size_t, std::pair<int64_t, int64_t>> in_use;
      size_t most = 0;
      for (const Action& a : list) {
        const size_t slot = slots[a.chunk][a.micro];
        if (a.what == Do::Forward) {
          EXPECT_TRUE(in_use.emplace(slot, std::pair{a.chunk, a.micro}).second) << title(pipeline);
          most = std::max(most, slot + 1);
        }
        if (ends_flight(a.what)) {
          EXPECT_EQ(in_use.erase(slot), 1U) << title(pipeline);
        }
      }
      EXPECT_EQ(most, most_in_flight(pipeline.lists[s])) << title(pipeline) << ", stage " << s;
    }
  });
}

}  // namespace
}  // namespace ladder::test
