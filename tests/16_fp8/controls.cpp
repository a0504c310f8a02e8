// 16_fp8: that its tests of equal bits would see a fault, and what a checkpoint must hold.
#include <cstring>
#include <limits>

#include "common/save/manifest.h"
#include "tests/common/same_trace.h"

namespace ladder::test {
namespace {

class Fp8Controls : public SameTraceSmall {};

// A weight becomes infinite in a file of weights.
TEST_F(Fp8Controls, AnInfiniteWeightIsSeenInEveryPrecision) {
  train("07_ddp", "--steps 1 --save saved");
  std::string file = read("saved/model.safetensors");
  int64_t length = 0;
  std::memcpy(&length, file.data(), 8);
  const auto header = nlohmann::json::parse(file.substr(8, static_cast<size_t>(length)));
  const auto& entry = header.at("transformer.h.0.mlp.c_fc.weight");
  const float infinity = std::numeric_limits<float>::infinity();
  std::memcpy(&file[8 + static_cast<size_t>(length) + entry["data_offsets"][0].get<size_t>()],
              &infinity, 4);
  write("infinite.safetensors", file);
  must_end_with(3);
  for (const std::string precision : {"fp32", "bf16", "fp8"}) {
    const auto told = report("16_fp8", "--load infinite.safetensors --precision " + precision);
    EXPECT_EQ(told["skipped"].size(), told["steps"].get<size_t>()) << precision;
    EXPECT_TRUE(told["val_loss"].is_null()) << precision;
    EXPECT_TRUE(report("16_fp8",
                       "--steps 0 --load infinite.safetensors --precision " + precision)["val_loss"]
                    .is_null())
        << precision;
  }
}

class Fp8Resume : public SameTraceSmall {
 protected:
  Trace rest() const { return trace("16_fp8", flags + "--load half", {kHalf, kSteps}); }
  nlohmann::json scales() const { return Manifest::read(path("half/current")).state.at("fp8"); }

  const std::string flags = "--precision fp8 ";
};

TEST_F(Fp8Resume, KnowsScalesAndHistory) {
  const Trace whole = trace("16_fp8", flags);
  const Trace first = trace("16_fp8", flags + "--save half", {0, kHalf});
  EXPECT_TRUE(same_trace(whole, joined(first, rest())));

  // Another scale, a history with a larger number, nothing at all.
  const nlohmann::json saved = scales();
  ASSERT_EQ(saved.size(), 2U * 12);
  nlohmann::json scaled = saved, remembered = saved;
  for (auto& scale : scaled) scale["scale"] = scale["scale"].get<float>() / 16;
  for (auto& scale : remembered) scale["history"].push_back(1000.0F);
  for (const auto& wrong : {scaled, remembered}) {
    set_state(path("half"), "fp8", wrong);
    EXPECT_TRUE(different_trace(whole, joined(first, rest())));
  }
  set_state(path("half"), "fp8", saved);
  EXPECT_TRUE(same_trace(whole, joined(first, rest())));
  set_state(path("half"), "fp8", nlohmann::json::array());
  EXPECT_TRUE(different_trace(whole, joined(first, rest())));
}

TEST_F(Fp8Resume, ACheckpointOfTheTrunkStartsItsScalesAnew) {
  for (const std::string precision : {"fp32", "bf16"}) {
    trace("07_ddp", "--save half --precision " + precision, {0, kHalf});
    EXPECT_TRUE(is_whole(rest())) << precision;
  }
}

// The weights that learn are FP32: a program of the trunk takes them, and says what it leaves.
TEST_F(Fp8Resume, ACheckpointOfFp8GoesOnInTheTrunk) {
  trace("16_fp8", flags + "--save half", {0, kHalf});
  const Ended ended = train("07_ddp", "--load half --precision bf16 --layers 2");
  EXPECT_NE(ended.err.find("left aside: fp8"), std::string::npos) << ended.err;
}

}  // namespace
}  // namespace ladder::test
