// ParamLayout: whole buffers and shards have types of their own, and published models have as many
// parameters as published. That each rank has its part: ../layouts.txt.
#include <concepts>
#include <cstdint>
#include <utility>

#include <gtest/gtest.h>

#include "common/model/layout.h"

namespace ladder::test {
namespace {

// A whole buffer and the buffer of a shard have two types. A function for one does not compile with
// the other.
template <class Buffer>
concept SeenAsAModel = requires(const ParamLayout& l, Buffer buffer) {
  l.view(buffer);
};
static_assert(SeenAsAModel<Tensor> && !SeenAsAModel<Shard> && !SeenAsAModel<Flat>);
static_assert(!std::convertible_to<Shard, Tensor> && !std::convertible_to<Tensor, Shard>);
static_assert(!std::convertible_to<Flat, Tensor> && !std::convertible_to<Flat, Shard>);

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

}  // namespace
}  // namespace ladder::test
