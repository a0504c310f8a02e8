// What the planner refuses: one line that says what is legal, status 2, nothing overwritten.
#include <algorithm>
#include <string>
#include <utility>

#include "tests/common/programs.h"

namespace ladder::test {
namespace {

class PlannerRefuses : public Programs {
 protected:
  /// `flags`, and of a small plan those that they leave open.
  static std::string with_defaults(std::string flags) {
    for (const auto& [flag, value] : {std::pair<std::string, std::string>{"--model", "tiny"},
                                      {"--batch", "8"},
                                      {"--gpus", "8"},
                                      {"--report", "plan.json"}})
      if (flags.find(flag + " ") == std::string::npos) flags += " " + flag + " " + value;
    return flags;
  }
};

TEST_F(PlannerRefuses, BadFlags) {
  write("plan.json", "old");
  write("own.toml", "name = \"x\"\n[peak]\nbf16 = 1\n");
  write("long.toml", "name = \"x\"\n[peak]\nbf16 = 1 # " + std::string(1 << 17, 'x'));
  for (const auto& [flags, says] :
       {std::pair{"--device h1000",
                  "legal are a100, a10g, b200, h100, h200, mi300x, tpu-v5p, v100, or a file"},
        {"--device own.toml", "no peak.fp32, peak.fp8, memory.gigabytes, "},
        {"--device no.toml", "no.toml"},
        {"--device long.toml", "long.toml"},
        {"--model gpt5", "no model is called gpt5"},
        {"--gpus 0", "--gpus must be from 1 to 1048576, not 0"},
        {"--threads 0", "--threads must be from 1 to 1048576, not 0"},
        {"--context star", "--context"},
        {"--gpus 6 --tp 4 --batch 6", "tp 4 x pp"},
        {"--tp 3", "--tp 3"},
        {"--pp 7 --tp 1", "--pp 7 must divide"},
        // The reason that all layouts share, whatever else is given, and what is nearest.
        {"--ep 2",
         "no layout is legal: ep: the model has no experts; nearest that is legal: --ep 1"},
        {"--pp 3 --tp 2 --recompute full",
         "--pp 3 must divide 4 layers; legal are 1, 2, 4; nearest"},
        {"--pp 3 --tp 2 --recompute full", "nearest that is legal: --pp 4"},
        {"--pp 2 --zero 3 --micro-batch 1", "zero 3 with pp 2: each micro-batch would be reduced"},
        {"--pp 2 --zero 3 --micro-batch 1", "nearest that is legal: --zero 1, or --pp 1"},
        {"--cp 3 --gpus 24 --batch 24", "2 cp = 6 chunks must divide 64 tokens; nearest that is"},
        {"--cp 3 --gpus 24 --batch 24", "legal: --cp 4"},
        {"--recompute every:4 --pp 2", "recompute every:4: a part of 2 stages has 2 layers"},
        {"--schedule interleaved --chunks 1 --pp 2",
         "interleaved with chunks 1: legal are 2 or more"},
        {"--pp 1 --tp 1 --dp 1048576 --cp 1048576", "are 1048576 devices, not 8"},
        {"--gpus 7",
         "of 7 devices for 8 sequences, 2 cp = 14 chunks must divide 64 tokens; or dp 7"},
        {"--gpus 7", "dp 7 must divide 8 sequences; nearest that is legal: --gpus 8, or --batch 7"},
        {"--zero 4", "--zero must be from 0 to 3"},
        {"--zero 2 --replicas 2 --micro-batch 1", "replicas 2: legal is 1 without zero 3"},
        {"--zero 3 --tp 1 --pp 1 --cp 1 --replicas 3 --micro-batch 1",
         "nearest that is legal: --replicas 4"},
        {"--zero 3 --pp 2 --tp 1 --cp 1 --dp 4 --micro-batch 1",
         "each micro-batch would be reduced by itself"},
        {"--batch 9 --dp 8 --tp 1 --pp 1 --cp 1", "must divide 9 sequences"},
        {"--ep 2 --tp 1 --pp 1 --cp 1", "the model has no experts"},
        {"--model moe-nano --ep 3 --dp 8 --tp 1 --pp 1 --cp 1", "ep 3 must divide 8 experts"},
        {"--micro-batch 3 --pp 1", "micro-batch 3"},
        {"--recompute much", "--recompute much; legal are none"},
        {"--schedule zb-h2", "legal are gpipe, 1f1b, interleaved, zb-h1"},
        {"--precision fp8 --device a100", "A100 SXM4 80 GB has no peak for it"},
        {"--precision int8", "--precision"},
        {"--explain speed", "--explain speed: legal are Param, "},
        {"--gradients none", "--gradients"},
        {"--price -1", "--price must be from 0"},
        {"--price nan", "--price must be from 0"},
        {"--train-tokens nan", "--train-tokens must be from 0"},
        {"--mtbf-hours 0", "--mtbf-hours must be above 0"},
        {"--compute 5", "--compute must be 0, or from 1e6"},
        {"--inference-tokens 5", "--inference-tokens is for --compute"},
        {"--compute 1e20 --inference-tokens nan", "--inference-tokens must be from 0 to 1e30"},
        {"--show 0", "--show must be from 1 to 1000"},
        {"--show 9223372036854775807", "--show must be from 1 to 1000"},
        {"--report no/such/plan.json", "--report"}}) {
    const Ended ended = run("23_planner", words(with_defaults(flags)));
    EXPECT_EQ(ended.status, 2) << flags;
    EXPECT_EQ(ended.out, "") << flags;
    EXPECT_TRUE(ended.err.starts_with("error: ")) << flags << "\n" << ended.err;
    EXPECT_EQ(std::ranges::count(ended.err, '\n'), 1) << ended.err;
    EXPECT_NE(ended.err.find(says), std::string::npos) << flags << "\n" << ended.err;
    EXPECT_EQ(read("plan.json"), "old") << flags;
  }
}

}  // namespace
}  // namespace ladder::test
