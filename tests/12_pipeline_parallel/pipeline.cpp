// Lists of pipelines, which pipeline_clock.cpp draws as the figures of the papers; and slots: no
// two micro-batches that are in flight together share one, and no slot is spare.
#include "chapters/12_pipeline_parallel/pipeline.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "chapters/12_pipeline_parallel/proof/pipeline_check.h"
#include "chapters/12_pipeline_parallel/stage.h"
#include "tests/12_pipeline_parallel/all_pipelines.h"

namespace ladder::test {
namespace {

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
