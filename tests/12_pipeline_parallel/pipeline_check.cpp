// Every pipeline is right, with as many micro-batches in flight as the formula says; and the
// checker refuses what is wrong, saying where.
#include "chapters/12_pipeline_parallel/proof/pipeline_check.h"

#include <gtest/gtest.h>

#include "tests/12_pipeline_parallel/all_pipelines.h"

namespace ladder::test {
namespace {

TEST(PipelineCheck, AllAreRight) {
  for_all_pipelines([](const Pipeline& pipeline) {
    EXPECT_NO_THROW(check_pipeline(pipeline)) << title(pipeline);
  });
}

TEST(PipelineCheck, AsManyInFlightAsPromised) {
  for_all_pipelines([](const Pipeline& pipeline) {
    const auto& [kind, p, v, m, lists] = pipeline;
    for (int64_t s = 0; s < p; ++s)
      EXPECT_EQ(most_in_flight(pipeline.lists[s]), promised_in_flight(kind, p, v, m, s))
          << title(pipeline) << ", stage " << s;
  });
}

TEST(PipelineCheck, InFlightOfFourStages) {
  const auto promised = [](const char* name, int64_t v) {
    std::vector<int64_t> all;
    for (int64_t s = 0; s < 4; ++s)
      all.push_back(promised_in_flight(*named<PipelineKind>(name), 4, v, 8, s));
    return all;
  };
  EXPECT_EQ(promised("gpipe", 1), (std::vector<int64_t>{8, 8, 8, 8}));
  EXPECT_EQ(promised("1f1b", 1), (std::vector<int64_t>{4, 3, 2, 1}));
  EXPECT_EQ(promised("interleaved", 2), (std::vector<int64_t>{11, 9, 7, 5}));
  EXPECT_EQ(promised("zb-h1", 1), (std::vector<int64_t>{4, 4, 4, 4}));
}

// What the mutant of chapter 12 does (CMakeLists.txt): check_pipeline() refuses it.
TEST(PipelineCheck, AllAreWrongWithoutTheLastWeightGradient) {
  for_all_pipelines([](const Pipeline& whole) {
    for (int64_t s = 0; s < whole.stages; ++s) {
      Pipeline without = whole;
      leave_out_last_weight_gradient(without.lists[s]);
      EXPECT_THROW(check_pipeline(without), CheckError) << title(whole) << ", stage " << s;
      EXPECT_NO_THROW(walk(without, [](const Turn&, const std::optional<Turn>&) {}));
    }
  });
}

TEST(PipelineCheck, WalksInAnOrderThatKeepsWaits) {
  for_all_pipelines([](const Pipeline& pipeline) {
    std::vector<int64_t> done(pipeline.stages);
    walk(pipeline, [&](const Turn& here, const std::optional<Turn>& other) {
      EXPECT_EQ(here.index, done[here.stage]++) << title(pipeline);
      const bool waited_for_the_future = other && other->index >= done[other->stage];
      EXPECT_FALSE(waited_for_the_future) << title(pipeline);
    });
    for (int64_t s = 0; s < pipeline.stages; ++s)
      EXPECT_EQ(done[s], std::ssize(pipeline.lists[s])) << title(pipeline);
  });
}

/// A pipeline to be spoilt. Stage 0 of 1f1b:
///   0 F0  1 >a0  2 F1  3 >a1  4 <g0  5 B0  6 F2  7 >a2  8 <g1  9 B1  ...  14 <g3  15 B3
/// Stage 1: 0 <a0  1 F0  2 B0  3 >g0  4 <a1  ...  12 <a3  13 F3  14 B3  15 >g3
class SpoiltPipeline : public ::testing::Test {
 protected:
  std::vector<Action>& list(int64_t s) { return pipeline.lists[s]; }
  void drop(int64_t s, int64_t i) { list(s).erase(list(s).begin() + i); }
  void swap(int64_t s, int64_t i, int64_t j) { std::swap(list(s)[i], list(s)[j]); }
  void insert(int64_t s, int64_t i, const Action& a) { list(s).insert(list(s).begin() + i, a); }
  /// Stage s computes this, and its messages stand where they must.
  void set(int64_t s, const std::vector<Action>& compute) {
    list(s) = with_messages(pipeline, s, compute);
  }
  /// The CheckError of f(), "" if there is none.
  template <class Call>
  static std::string refusal(Call&& f) {
    try {
      f();
    } catch (const CheckError& e) {
      return e.what();
    }
    return "";
  }
  void expect_refused(const std::string& says) const {
    const std::string message = refusal([&] { check_pipeline(pipeline); });
    EXPECT_NE(message.find(says), std::string::npos) << "says: " << message << "\nnot: " << says;
  }
  /// All micro-batches through the first chunk, then all through the second; and back.
  static Pipeline breadth_first(int64_t micros) {
    Pipeline all{.kind = PipelineKind::Interleaved,
                 .stages = 2,
                 .chunks = 2,
                 .micros = micros,
                 .lists = {{}, {}}};
    std::vector<Action> compute;
    for (const auto& [what, chunk] : {std::pair{F, 0}, {F, 1}, {B, 1}, {B, 0}})
      for (int64_t k = 0; k < micros; ++k) compute.push_back({what, k, chunk});
    for (const int64_t s : {0, 1}) all.lists[s] = with_messages(all, s, compute);
    return all;
  }

  static constexpr Do F = Do::Forward, B = Do::Backward, I = Do::BackwardInput,
                      W = Do::BackwardWeight;

  Pipeline pipeline = make_pipeline(PipelineKind::OneFOneB, 2, 1, 4);
};

TEST_F(SpoiltPipeline, DroppedForward) {
  drop(0, 2);
  expect_refused(
      "pipeline 1f1b: stage 0, action 8 (Backward of micro-batch 1, chunk 0) has no "
      "Forward before it");
}
TEST_F(SpoiltPipeline, DroppedAtTheEnd) {
  drop(0, 15);
  expect_refused("stage 0 ends with 3 of 4 micro-batches through chunk 0");
}
TEST_F(SpoiltPipeline, ForwardTwice) {
  insert(0, 6, {F, 0, 0});
  expect_refused("stage 0, action 6 (Forward of micro-batch 0, chunk 0) is there twice");
}
TEST_F(SpoiltPipeline, BackwardBeforeForward) {
  swap(1, 1, 2);
  expect_refused("stage 1, action 1 (Backward of micro-batch 0, chunk 0) has no Forward before");
}
TEST_F(SpoiltPipeline, BackwardsInAnotherOrder) {
  swap(0, 5, 9);
  expect_refused(
      "stage 0, action 5 (Backward of micro-batch 1, chunk 0): here must be "
      "micro-batch 0");
}
TEST_F(SpoiltPipeline, NoSuchMicroBatchOrChunk) {
  list(1)[13].micro = 4;
  expect_refused(
      "stage 1, action 13 (Forward of micro-batch 4, chunk 0): there are 4 "
      "micro-batches and 1 chunks");
  list(1)[13] = {F, -1, 0};
  expect_refused("stage 1, action 13");
  list(1)[13] = {F, 3, 1};
  expect_refused("stage 1, action 13");
  list(1)[13] = {F, 3, -1};
  expect_refused("stage 1, action 13");
}

TEST_F(SpoiltPipeline, WeightsInAnotherOrder) {
  pipeline = make_pipeline(PipelineKind::ZbH1, 2, 1, 4);
  const auto first = std::ranges::find(list(1), Action{W, 0, 0});
  const auto second = std::ranges::find(list(1), Action{W, 1, 0});
  std::iter_swap(first, second);
  expect_refused(
      fmt::format("stage 1, action {} (BackwardWeight of micro-batch 1, chunk 0): here "
                  "must be micro-batch 0",
                  first - list(1).begin()));
}
TEST_F(SpoiltPipeline, WeightBeforeInput) {
  pipeline = make_pipeline(PipelineKind::ZbH1, 2, 1, 2);
  set(0, {{F, 0, 0}, {W, 0, 0}, {I, 0, 0}, {F, 1, 0}, {I, 1, 0}, {W, 1, 0}});
  expect_refused(
      "stage 0, action 2 (BackwardWeight of micro-batch 0, chunk 0) has no "
      "BackwardInput before it");
}

TEST_F(SpoiltPipeline, DroppedSend) {
  drop(0, 3);
  expect_refused(
      "stage 0, action 3 (RecvGradient of micro-batch 0, chunk 0): here must be "
      "SendActivation of micro-batch 1, chunk 0");
}
TEST_F(SpoiltPipeline, DroppedLastSend) {
  drop(1, 15);
  expect_refused("stage 1 ends without SendGradient of micro-batch 3, chunk 0");
}
TEST_F(SpoiltPipeline, SentTwice) {
  insert(1, 16, {Do::SendGradient, 3, 0});
  expect_refused("stage 1, action 16 (SendGradient of micro-batch 3, chunk 0) is too many");
}

TEST_F(SpoiltPipeline, ReceivesAnotherThanSent) {
  set(0, {{F, 1, 0}, {F, 0, 0}, {B, 0, 0}, {F, 2, 0}, {B, 1, 0}, {F, 3, 0}, {B, 2, 0}, {B, 3, 0}});
  expect_refused(
      "stage 1, action 0 (RecvActivation of micro-batch 0, chunk 0) gets the message of "
      "stage 0, action 1 (SendActivation of micro-batch 1, chunk 0)");
}

TEST_F(SpoiltPipeline, StagesThatWaitForEachOther) {
  // Stage 0 wants the gradient of micro-batch 0 first, stage 1 the activation of 1.
  set(0, {{F, 0, 0}, {B, 0, 0}, {F, 1, 0}, {B, 1, 0}, {F, 2, 0}, {B, 2, 0}, {F, 3, 0}, {B, 3, 0}});
  pipeline.kind = PipelineKind::GPipe;
  set(1, {{F, 0, 0}, {F, 1, 0}, {B, 0, 0}, {B, 1, 0}, {F, 2, 0}, {B, 2, 0}, {F, 3, 0}, {B, 3, 0}});
  expect_refused(
      "no stage can go on: stage 0, action 2 (RecvGradient of micro-batch 0, chunk 0) "
      "waits for stage 1; stage 1, action 2 (RecvActivation of micro-batch 1, chunk 0) "
      "waits for stage 0");
}

TEST_F(SpoiltPipeline, FullMailboxes) {
  // All micro-batches through chunk 0 first. Stage 1 can send kMailbox back and waits with the
  // next; so it takes kMailbox + 1, kMailbox more find room, and stage 0 waits with the next.
  pipeline = breadth_first(2 * kMailbox + 1);
  EXPECT_EQ(refusal([&] { walk(pipeline, [](auto...) {}); }), "");
  pipeline = breadth_first(2 * kMailbox + 2);
  EXPECT_EQ(refusal([&] { walk(pipeline, [](auto...) {}); }),
            "pipeline interleaved: no stage can go on: "
            "stage 0, action 11 (SendActivation of micro-batch 5, chunk 0) waits for stage 1; "
            "stage 1, action 8 (SendActivation of micro-batch 2, chunk 0) waits for stage 0");
}

TEST_F(SpoiltPipeline, MoreInFlightThanPromised) {
  list(1) = make_pipeline(PipelineKind::GPipe, 2, 1, 4).lists[1];
  expect_refused("stage 1 has 4 micro-batches in flight, and 1 are promised");
}

TEST_F(SpoiltPipeline, ListsMissing) {
  pipeline.lists.pop_back();
  expect_refused("1 lists for 2 stages");
}

}  // namespace
}  // namespace ladder::test
