// Models with experts: how many parameters they have, and where experts lie.
#include <map>
#include <string>
#include <utility>

#include <gtest/gtest.h>

#include "common/error.h"
#include "common/model/layout.h"
#include "kernels/arena.h"

namespace ladder {
namespace {

TEST(ExpertLayout, ExpertsLieOneBehindTheOther) {
  GptConfig config = preset("moe-nano");
  for (const int64_t shared : {0, 2}) {
    config.experts.shared = shared;
    const ParamLayout layout(config);
    Arena arena;
    const Tensor flat = arena.alloc(Mem::Param, "params", Dtype::F32, {layout.size()});
    const BlockTensors block = layout.view(flat).blocks[3];
    EXPECT_EQ(block.experts.router.shape, (Shape{8, 64}));
    EXPECT_EQ(block.experts.fc.shape, (Shape{8, 128, 64}));
    EXPECT_EQ(block.experts.proj_w.shape, (Shape{8, 64, 64}));
    for (int64_t e = 0; e < 8; ++e) {
      const std::string name = fmt::format("model.layers.3.block_sparse_moe.experts.{}.", e);
      const auto at = [&](Tensor all) {
        return all.slice(e, 1).data<float>() - flat.data<float>();
      };
      EXPECT_EQ(at(block.experts.fc), layout.spec(name + "w13.weight").offset);
      EXPECT_EQ(at(block.experts.proj_w), layout.spec(name + "w2.weight").offset);
    }
    // Those that every token takes are one MLP; without them there is none.
    EXPECT_EQ(static_cast<bool>(block.mlp.fc.w), shared > 0);
    EXPECT_EQ(block.mlp.fc.w ? block.mlp.fc.w.dim(0) : 0, 2 * shared * 64);
  }
}

// 8 ranks, of which 4 share the experts: rank r has 2 of them, and r + 4 has the same.
TEST(ExpertLayout, RanksThatShareExpertsHaveSectionsOfTheirOwn) {
  const GptConfig config = preset("moe-nano");
  const auto of = [&](int64_t r) { return ParamLayout(config, 8, {}, {}, ExpertRank{r % 4, 4}); };
  std::map<std::string, int64_t> elements;
  for (int64_t r = 0; r < 8; ++r) {
    const ParamLayout layout = of(r), shard = layout.shard(r);
    ASSERT_EQ(layout.sections(), 2 * config.layers + 2);
    EXPECT_EQ(shard.size(), layout.section(0).size() / 8 + layout.section(9).size() / 8 +
                                4 * (layout.section(1).size() / 8 + layout.section(2).size() / 2));
    for (const int64_t l : {0, 3}) {
      const int64_t s = layout.expert_section(l);
      EXPECT_EQ(s, layout.block_section(l) + 1);
      EXPECT_TRUE(layout.is_of_experts(s) && !layout.is_of_experts(layout.block_section(l)));
      EXPECT_EQ(
          layout.specs(s).front().name,
          fmt::format("model.layers.{}.block_sparse_moe.experts.{}.w13.weight", l, r % 4 * 2));
      EXPECT_EQ(std::ssize(layout.specs(s)), 2 * 2);
      EXPECT_EQ(std::pair(shard.chunks(s), shard.chunk(s)), std::pair(int64_t{2}, r / 4));
    }
    for (const ParamSpec& spec : shard.specs()) elements[spec.name] += spec.live();
    // What rank 0 knows of the others.
    const ParamLayout there = of(0).shard(0).on_rank(r);
    ASSERT_EQ(there.specs().size(), shard.specs().size());
    for (size_t i = 0; i < shard.specs().size(); ++i) {
      EXPECT_EQ(there.specs()[i].name, shard.specs()[i].name);
      EXPECT_EQ(there.specs()[i].part, shard.specs()[i].part);
    }
  }
  // All ranks together have each element once, and the whole lies as without such sections.
  const ParamLayout whole = of(5).whole(), plain(config);
  EXPECT_EQ(elements.size(), whole.specs().size());
  for (size_t i = 0; i < whole.specs().size(); ++i) {
    EXPECT_EQ(elements[whole.specs()[i].name], whole.specs()[i].live());
    EXPECT_EQ(whole.specs()[i].offset, plain.specs()[i].offset);
  }
  Arena arena;
  const Tensor flat = arena.alloc(Mem::Param, "params", Dtype::F32, {of(2).size()});
  const ExpertTensors experts = of(2).view(flat).blocks[3].experts;
  EXPECT_EQ(experts.router.shape, (Shape{8, 64}));
  EXPECT_EQ(experts.fc.shape, (Shape{2, 128, 64}));
  EXPECT_EQ(experts.proj_w.shape, (Shape{2, 64, 64}));
}

TEST(GptConfig, RefusesImpossibleExperts) {
  const auto refusal = [](auto change) -> std::string {
    GptConfig config = preset("moe-nano");
    change(config);
    try {
      config.check();
    } catch (const UserError& e) {
      return e.what();
    }
    return "";
  };
  EXPECT_EQ(refusal([](GptConfig&) {}), "");
  for (const int64_t chosen : {0, 9})
    EXPECT_NE(refusal([&](GptConfig& c) { c.experts.chosen = chosen; }).find("from 1 to the 8"),
              std::string::npos);
  EXPECT_NE(refusal([](GptConfig& c) { c.mlp = Mlp::Gelu; }), "");
  EXPECT_NE(refusal([](GptConfig& c) { c.bias = true; }), "");
  EXPECT_NE(refusal([](GptConfig& c) {
              c.hidden = 1;
              c.channels = 24;
            }).find("multiple of 64"),
            std::string::npos);
}

}  // namespace
}  // namespace ladder
