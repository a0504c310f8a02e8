// ParamLayout: whoever shares a model, each parameter lies somewhere, and counts once.
#include <algorithm>
#include <concepts>
#include <cstdint>
#include <numeric>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "common/model/layout.h"

namespace ladder::test {
namespace {

/// How ranks share the model.
struct Sharing {
  int64_t tensor, shards, stages, chunks;
  int64_t ranks() const { return tensor * shards * stages; }
};

GptConfig model() {
  return {.name = "test",
          .layers = 8,
          .heads = 4,
          .channels = 64,
          .seq_len = 8,
          .positions = 10,
          .vocab = 70,
          .padded_vocab = 96};
}

class LayoutSharing : public ::testing::TestWithParam<Sharing> {
 protected:
  /// What rank r has, in the order tensor ranks, shards, stages.
  static ParamLayout on_rank(int64_t r) {
    const auto& [tensor, shards, stages, chunks] = GetParam();
    const ParamLayout first(model(), shards, {0, tensor}, {0, stages, chunks});
    return first.shard(0).on_rank(r);
  }
};
INSTANTIATE_TEST_SUITE_P(Layout, LayoutSharing,
                         ::testing::Values(Sharing{1, 1, 1, 1}, Sharing{4, 1, 1, 1},
                                           Sharing{1, 3, 1, 1}, Sharing{1, 1, 4, 1},
                                           Sharing{1, 1, 2, 2}, Sharing{2, 2, 2, 1},
                                           Sharing{2, 4, 2, 4}),
                         [](const auto& i) {
                           const Sharing& s = i.param;
                           return fmt::format("tensor{}_shards{}_stages{}_chunks{}", s.tensor,
                                              s.shards, s.stages, s.chunks);
                         });

TEST_P(LayoutSharing, EveryParameterCountsOnce) {
  const ParamLayout whole(model());
  std::vector<int> counted(static_cast<size_t>(whole.size()));
  int64_t live = 0;
  for (int64_t r = 0; r < GetParam().ranks(); ++r) {
    const ParamLayout here = on_rank(r);
    live += here.live();
    for (const ParamSpec& spec : here.specs()) {
      if (spec.is_copy) continue;
      const int64_t begin = whole.spec(spec.name).offset;
      spec.for_runs([&](int64_t, int64_t there, int64_t n) {
        for (int64_t i = 0; i < n; ++i) ++counted.at(static_cast<size_t>(begin + there + i));
      });
    }
  }
  EXPECT_EQ(live, whole.live());
  for (const ParamSpec& spec : whole.specs())
    for (int64_t i = 0; i < spec.shape.size(); ++i)
      ASSERT_EQ(counted[static_cast<size_t>(spec.offset + i)], i < spec.live() ? 1 : 0)
          << spec.name << " " << i;
}

TEST_P(LayoutSharing, PartsLieInTheirSectionsAndDoNotOverlap) {
  for (int64_t r = 0; r < GetParam().ranks(); ++r) {
    const ParamLayout here = on_rank(r);
    ASSERT_EQ(here.sections(), model().layers + 2);
    int64_t end = 0;
    for (int64_t s = 0; s < here.sections(); ++s) {
      EXPECT_EQ(here.section(s).begin, end);
      for (const ParamSpec& spec : here.specs(s)) {
        EXPECT_EQ(spec.offset % kAlign, 0) << spec.name;
        EXPECT_GE(spec.offset, end) << spec.name;
        end = spec.offset + spec.part.size();
      }
      EXPECT_LE(end, here.section(s).end);
      end = here.section(s).end;
    }
    EXPECT_EQ(here.size(), end);
    EXPECT_EQ(here.whole_size(), end * GetParam().shards);
  }
}

// A whole buffer and a shard's are two types: what takes one does not compile with the other.
template <class Buffer>
concept SeenAsAModel = requires(const ParamLayout& l, Buffer buffer) {
  l.view(buffer);
};
static_assert(SeenAsAModel<Tensor> && !SeenAsAModel<Shard> && !SeenAsAModel<Flat>);
static_assert(!std::convertible_to<Shard, Tensor> && !std::convertible_to<Tensor, Shard>);
static_assert(!std::convertible_to<Flat, Tensor> && !std::convertible_to<Flat, Shard>);

// The layout of a shard finds the same chunks in a whole buffer and in its own.
TEST_P(LayoutSharing, AShardIsFoundInBothKindsOfBuffer) {
  for (int64_t r = 0; r < GetParam().ranks(); ++r) {
    const ParamLayout here = on_rank(r);
    std::vector<float> all(static_cast<size_t>(here.whole_size())), chunks;
    std::iota(all.begin(), all.end(), 0.0F);
    const Tensor whole{.ptr = all.data(), .shape = {here.whole_size()}};
    for (const Tensor& chunk : here.sections_of(whole))
      chunks.insert(chunks.end(), chunk.data<float>(), chunk.data<float>() + chunk.size());
    ASSERT_EQ(std::ssize(chunks), here.size());
    const Tensor own{.ptr = chunks.data(), .shape = {here.size()}};
    for (const ParamSpec& spec : here.specs()) {
      const Tensor a = here.tensor(whole, spec), b = here.tensor(Shard(own), spec);
      ASSERT_EQ(a.shape, b.shape);
      EXPECT_TRUE(std::equal(a.data<float>(), a.data<float>() + a.size(), b.data<float>()))
          << spec.name;
    }
    if (GetParam().shards == 1) continue;
    EXPECT_THROW(here.section_of(own, 0), CheckError);
    EXPECT_THROW(here.section_of(Shard(whole), 0), CheckError);
  }
}

// Of a stage the buffer holds its own sections alone, and the view of a model nothing else.
TEST(Layout, AStageHasItsPartsAlone) {
  const ParamLayout stage(model(), 1, {}, {1, 2, 2});  // parts 1 and 3 of 4: blocks 2, 3, 6, 7
  std::vector<float> buffer(static_cast<size_t>(stage.size()));
  const GptTensors gpt =
      stage.view({.ptr = buffer.data(), .dtype = Dtype::F32, .shape = {stage.size()}});
  EXPECT_FALSE(gpt.embed.wte);
  EXPECT_TRUE(gpt.head_w);
  for (const int64_t l : {0, 1, 4, 5}) EXPECT_FALSE(gpt.blocks[static_cast<size_t>(l)].residual1_b);
  for (const int64_t l : {2, 3, 6, 7}) EXPECT_TRUE(gpt.blocks[static_cast<size_t>(l)].residual1_b);
  EXPECT_EQ(stage.stage_rank().blocks(8, 0), (Range{2, 4}));
  EXPECT_EQ(stage.stage_rank().blocks(8, 1), (Range{6, 8}));
}

}  // namespace
}  // namespace ladder::test
