// ParamLayout: however ranks share a model, each parameter has a place and counts once.
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
          .channels = 40,  // most tensors have to be aligned
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
        EXPECT_EQ(spec.offset, round_up(end, kAlign)) << spec.name;
        end = spec.offset + spec.part.size();
      }
      EXPECT_LE(end, here.section(s).end);
      // One shard needs no padding behind the tensors.
      EXPECT_TRUE(GetParam().shards > 1 || round_up(end, kAlign) == here.section(s).end);
      end = here.section(s).end;
    }
    EXPECT_EQ(here.size(), end);
    EXPECT_EQ(here.whole_size(), end * GetParam().shards);
  }
}

// A whole buffer and the buffer of a shard have two types. A function for one does not compile with
// the other.
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

// As published, or counted from published shapes.
TEST(Layout, CountsPublishedModels) {
  const std::pair<const char*, int64_t> published[] = {
      {"gpt2-124m", 124'439'808},       {"gpt2-1558m", 1'557'611'200},
      {"llama2-7b", 6'738'415'616},     {"llama2-70b", 68'976'648'192},
      {"llama3-8b", 8'030'261'248},     {"llama3-70b", 70'553'706'496},
      {"llama3-405b", 405'853'388'800}, {"mistral-7b", 7'241'732'096},
      {"mixtral-8x7b", 46'702'792'704}};
  for (const auto& [name, parameters] : published) {
    GptConfig config = preset(name);
    config.tied_head = family(config) == Family::Gpt2;
    EXPECT_EQ(ParamLayout(config).live(), parameters) << name;
    // GPT-2 without the flag has a head of its own.
    const int64_t head = config.tied_head ? config.vocab * config.channels : 0;
    EXPECT_EQ(ParamLayout(preset(name)).live(), parameters + head) << name;
  }
  const GptConfig mixtral = preset("mixtral-8x7b");  // what a token uses
  EXPECT_EQ(ParamLayout(mixtral).live() - mixtral.layers * mixtral.idle_matrices(), 12'879'925'248);
}

// L (2 C NH HS + 2 C NKV HS + 3 C F + 2 C) + C + 2 V C; with experts E (C + 3 C F) in place of
// 3 C F, and as much as one expert for those that every token takes.
TEST(Layout, CountsModelsOfOurOwn) {
  const auto live = [](const char* name) { return ParamLayout(preset(name)).live(); };
  EXPECT_EQ(live("llama-nano"), 8 * (3 * 128 * 128 + 3 * 128 * 384 + 2 * 128) + 128 + 512 * 128);
  EXPECT_EQ(live("llama-tiny"), 4 * (3 * 128 * 128 + 3 * 128 * 384 + 2 * 128) + 128 + 512 * 128);
  EXPECT_EQ(live("moe-nano"), 4 * (3 * 64 * 64 + 8 * (64 + 3 * 64 * 64) + 2 * 64) + 64 + 512 * 64);
  const int64_t C = 7168, F = 2048;
  EXPECT_EQ(live("like-deepseek-v3"),
            61 * (4 * C * C + 256 * (C + 3 * C * F) + 3 * C * F + 2 * C) + C + 2 * 129280 * C);
}

// The buffer of a stage holds only its own sections, and the view of the model has only these.
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
