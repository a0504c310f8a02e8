// --backend cuda-on-cpu: every chapter trains on the CUDA kernels, here without a GPU.
//
// Reordered tier beside `ref`: the kernels sum in other orders. Exact tier within itself: the same
// micro-batches give the same bits, whatever is recomputed and in whatever order threads run.
#include <cmath>
#include <cstdlib>

#include "tests/common/memory.h"
#include "tests/common/ranks.h"
#include "tests/common/same_trace.h"

namespace ladder::test {
namespace {

// A thread at a time is slow: small shapes, and little to validate on.
const std::string kShort = " --layers 2 --channels 32 --heads 4 --seq-len 9 --batch 4 ";
constexpr size_t kTextBytes = 400;
constexpr Range kTwoSteps = {0, 2};

class CudaOnCpu : public SameTrace {
 protected:
  CudaOnCpu() { write("text.txt", read("text.txt").substr(0, kTextBytes)); }

  Trace on(const std::string& backend, const std::string& chapter, const std::string& flags) const {
    return trace(chapter, flags + kShort + "--backend " + backend, kTwoSteps);
  }
  Trace cuda(const std::string& chapter, const std::string& flags) const {
    return on("cuda-on-cpu", chapter, flags);
  }
};

double number(const std::string& hex) { return std::strtod(hex.c_str(), nullptr); }

/// Success if losses and norms of all steps agree to `relative`; NaN fails.
::testing::AssertionResult near(const Trace& a, const Trace& b, double relative) {
  if (const auto whole = is_whole(a); !whole) return whole;
  if (const auto whole = is_whole(b); !whole) return whole;
  for (size_t i = 0; i < a.steps.size(); ++i)
    for (const auto field : {&TraceStep::loss, &TraceStep::grad_norm}) {
      const double x = number(a.steps[i].*field), y = number(b.steps[i].*field);
      if (!(std::abs(x - y) <= relative * y))
        return ::testing::AssertionFailure() << "step " << i << ": " << x << " and " << y;
    }
  return ::testing::AssertionSuccess();
}

// A sum of K terms in another order is off by at most K eps of their magnitudes, sqrt(K) eps if
// they are like random: the vocabulary is the longest here, so sqrt(256) 2^-24 = 2^-20 at one
// product. Some ten products lie between a weight and the loss, and two updates.
constexpr double kReordered = 0x1p-15;

class EveryChapter : public CudaOnCpu, public ::testing::WithParamInterface<std::string> {};
INSTANTIATE_TEST_SUITE_P(CudaOnCpu, EveryChapter, ::testing::ValuesIn(chapters_from("01_sgd")),
                         [](const auto& chapter) { return "ch" + chapter.param; });

TEST_P(EveryChapter, AgreesWithRef) {
  EXPECT_TRUE(near(cuda(GetParam(), ""), on("ref", GetParam(), ""), kReordered));
}

// Whatever the optimizer: each has kernels of its own.
TEST_F(CudaOnCpu, EveryOptimizerAgreesWithRef) {
  // Lion takes the sign of what may be nearly zero, so one rounding can turn an update around; the
  // 8-bit states may round to a neighbor.
  for (const auto& [name, relative] : {std::pair{"sgd --momentum 0.9 --nesterov", kReordered},
                                       {"adam", kReordered},
                                       {"adafactor", kReordered},
                                       {"lion --lr 1e-4", 0x1p-12},
                                       {"adamw8bit", 0x1p-10}}) {
    const std::string flags = std::string("--optimizer ") + name;
    EXPECT_TRUE(near(cuda("02_adamw", flags), on("ref", "02_adamw", flags), relative)) << name;
  }
}

// After a step far too large, scores are so large that a float near them has no place for what is
// subtracted. Weights that pass 1 there would give a gradient a hundred times too long, or NaN.
TEST_F(CudaOnCpu, AfterAStepFarTooLargeTablesAgree) {
  for (const char* lr : {"40", "80"}) {
    const auto on_backend = [&](const std::string& backend) {
      return trace("02_adamw",
                   "--layers 1 --channels 16 --heads 2 --batch 4 --lr " + std::string(lr) +
                       " --backend " + backend,
                   kTwoSteps);
    };
    const Trace want = on_backend("ref");
    for (const char* backend : {"cpu", "cuda-on-cpu"})
      EXPECT_TRUE(near(on_backend(backend), want, 0.01)) << backend << " " << lr;
  }
}

// Other kernels than the plain step's.
TEST_F(CudaOnCpu, ClippingAgreesWithRef) {
  const std::string flags = "--micro-batch 2 --clip 1";
  EXPECT_TRUE(near(cuda("04_clipping", flags), on("ref", "04_clipping", flags), kReordered));
  const std::string rows = "--micro-batch 2 --clip 1 --agc 0.05";
  EXPECT_TRUE(near(cuda("14_stability", rows), on("ref", "14_stability", rows), kReordered));
  // On ranks rows are cut; and a look into tensors changes nothing.
  EXPECT_TRUE(same_trace(cuda("14_stability", rows),
                         cuda("29_monitor", rows + " --ranks 2 --watch-every 1")));
}

// Narrow activations: a sum in another order may round to the neighbor, 2^-9 away in BF16.
TEST_F(CudaOnCpu, EveryPrecisionAgreesWithRef) {
  const auto expect_near = [&](const std::string& chapter, const std::string& precision,
                               double relative) {
    const std::string flags = "--precision " + precision;
    EXPECT_TRUE(near(cuda(chapter, flags), on("ref", chapter, flags), relative)) << precision;
  };
  expect_near("05_mixed_precision", "bf16", 0x1p-8);
  expect_near("05_mixed_precision", "fp16 --loss-scale 1024", 0x1p-11);
  expect_near("16_fp8", "fp8", 0x1p-7);
}

// Of 16 tokens: tensor cores take the codes as they are, and what they sum is transposed before.
TEST_F(CudaOnCpu, Fp8OnUnitsAgreesWithRef) {
  const auto run = [&](const std::string& backend) {
    return trace("16_fp8",
                 "--precision fp8 --layers 2 --channels 32 --heads 4 --seq-len 16 --batch 4 "
                 "--backend " +
                     backend,
                 kTwoSteps);
  };
  EXPECT_TRUE(near(run("cuda-on-cpu"), run("ref"), 0x1p-7));
}

// Negative control: the tolerance is smaller than what a wrong model does.
TEST_F(CudaOnCpu, NegativeControlAnotherSeedIsFar) {
  EXPECT_FALSE(near(cuda("02_adamw", "--seed 2"), on("ref", "02_adamw", ""), 0x1p-7));
}

TEST_F(CudaOnCpu, EveryPolicyHasTheSameBits) {
  const auto expect_same = [&](const std::string& kept, const std::string& recomputed,
                               const std::string& precision) {
    const std::string flags = "--precision " + precision + " --micro-batch 2 ";
    const Trace want = cuda(kept, flags);
    for (const std::string policy : {"full", "selective"})
      EXPECT_TRUE(same_trace(want, cuda(recomputed, flags + "--recompute " + policy)))
          << precision << " " << policy;
  };
  expect_same("05_mixed_precision", "06_checkpointing", "fp32");
  expect_same("05_mixed_precision", "06_checkpointing", "bf16");
  expect_same("16_fp8", "16_fp8", "fp8");
}

TEST_F(CudaOnCpu, TheOrderOfThreadsChangesNothing) {
  const Trace one = cuda("06_checkpointing", "--precision bf16");
  setenv("LADDER_ON_CPU_SEED", "12345", /*overwrite=*/1);
  const Trace other = cuda("06_checkpointing", "--precision bf16");
  unsetenv("LADDER_ON_CPU_SEED");
  EXPECT_TRUE(same_trace(one, other));
}

TEST_F(CudaOnCpu, Resumes) {
  const std::string flags = kShort + "--backend cuda-on-cpu --precision fp8 --optimizer adamw8bit";
  EXPECT_TRUE(same_trace(SameTrace::trace("16_fp8", flags), interrupted("16_fp8", flags)));
}

// Ranks share the one GPU, each with a stream of its own. At equal micro-batch they have the bits
// of one rank.
class RanksOnCudaOnCpu : public CudaOnCpu, public ::testing::WithParamInterface<DataParallel> {};
INSTANTIATE_TEST_SUITE_P(CudaOnCpu, RanksOnCudaOnCpu, ::testing::ValuesIn(data_parallel()),
                         row_name);

TEST_P(RanksOnCudaOnCpu, HaveTheBitsOfOne) {
  for (const std::string flags :
       {"--micro-batch 2 --clip 1 --bucket-mb 0", "--micro-batch 1 --precision bf16 --clip 1"}) {
    const Trace one = cuda("06_checkpointing", flags.substr(0, flags.find(" --bucket")));
    EXPECT_TRUE(same_trace(one, cuda(GetParam().chapter, flags + " --ranks 2"))) << flags;
  }
}

// Their scales are from the maxima of both.
TEST_F(CudaOnCpu, RanksWithFp8HaveTheBitsOfOne) {
  const std::string flags = "--micro-batch 1 --precision fp8 --clip 1";
  EXPECT_TRUE(same_trace(cuda("16_fp8", flags), cuda("16_fp8", flags + " --ranks 2")));
}

TEST_P(RanksOnCudaOnCpu, NegativeControlALostSumDiffers) {
  EXPECT_TRUE(different_trace(
      cuda("06_checkpointing", "--micro-batch 2"),
      cuda(GetParam().chapter, "--micro-batch 2 --ranks 2 --fault skip:" + GetParam().sums)));
}

TEST_P(RanksOnCudaOnCpu, BytesAreAsPredicted) {
  EXPECT_TRUE(as_predicted(report(GetParam().chapter, kShort + "--steps 1 --ranks 2 --backend "
                                                               "cuda-on-cpu --precision bf16")));
}

// The products of two ranks are other than those of one. Who has which tokens changes no product.
TEST_F(CudaOnCpu, RanksThatShareLayersAndSequences) {
  const std::string flags =
      " --layers 2 --channels 32 --heads 4 --seq-len 10 --batch 3 --clip 1 --backend ";
  const auto with = [&](const std::string& rest) {
    return trace("11_tensor_parallel", flags + rest, kTwoSteps);
  };
  const Trace plain = with("cuda-on-cpu --tp 2");
  EXPECT_TRUE(near(plain, with("ref"), kReordered));
  EXPECT_TRUE(same_trace(plain, with("cuda-on-cpu --tp 2 --sequence-parallel")));
  EXPECT_TRUE(different_trace(
      plain, with("cuda-on-cpu --tp 2 --sequence-parallel --fault skip:reduce_scatter:3")));
}

// Ranks that share a sequence sum its tokens apart, so that the reordered tier is left.
TEST_F(CudaOnCpu, RanksThatShareASequence) {
  write("text.txt", read("text.txt") + read("text.txt") + read("text.txt") + read("text.txt"));
  const auto with = [&](const std::string& rest) {
    return trace("20_context_parallel",
                 "--model gpt2-124m --vocab 256 --layers 1 --channels 16 --heads 2 --seq-len 128 "
                 "--batch 1 --backend " +
                     rest,
                 kTwoSteps);
  };
  const Trace want = with("ref");
  for (const std::string way : {"gather", "ulysses", "ring"})
    EXPECT_TRUE(near(with("cuda-on-cpu --cp 2 --context " + way), want, kReordered)) << way;
  EXPECT_FALSE(
      near(with("cuda-on-cpu --cp 2 --context ring --fault swap:recv:0"), want, kReordered));
}

// An owner has rows of all ranks, so its products are other than those of one rank.
TEST_F(CudaOnCpu, RanksThatShareExperts) {
  const auto with = [&](const std::string& chapter, const std::string& rest) {
    return trace(chapter,
                 "--model moe-nano --layers 1 --channels 32 --hidden 16 --seq-len 8 --batch 4 "
                 "--experts-per-token 3 --backend " +
                     rest,
                 kTwoSteps);
  };
  const Trace want = with("21_moe", "ref");
  EXPECT_TRUE(near(with("22_expert_parallel", "cuda-on-cpu --ep 2"), want, kReordered));
  EXPECT_FALSE(near(with("22_expert_parallel", "cuda-on-cpu --ep 2 --fault skip:all_to_all:3"),
                    want, kReordered));
}

// A mesh multiplies the same matrices as its tensor ranks alone.
TEST_F(CudaOnCpu, MeshesHaveTheBitsOfTheirTensorRanks) {
  const std::string flags =
      " --layers 2 --channels 32 --heads 4 --seq-len 8 --batch 4 --micro-batch 1 --clip 1 "
      "--backend cuda-on-cpu ";
  const auto with = [&](const std::string& chapter, const std::string& rest) {
    return trace(chapter, flags + rest, kTwoSteps);
  };
  const Trace one = with("06_checkpointing", ""), two = with("11_tensor_parallel", "--tp 2");
  EXPECT_TRUE(same_trace(one, with("13_3d_parallel", "--pp 2 --dp 2")));
  EXPECT_TRUE(same_trace(two, with("13_3d_parallel", "--tp 2 --pp 2 --sequence-parallel")));
  EXPECT_TRUE(
      different_trace(one, with("13_3d_parallel", "--pp 2 --dp 2 --fault skip:reduce_scatter:1")));
}

TEST_F(CudaOnCpu, StagesHaveTheBitsOfOneRank) {
  const Trace one = cuda("06_checkpointing", "--micro-batch 2 --clip 1");
  for (const std::string schedule : {"gpipe", "1f1b", "zb-h1"})
    EXPECT_TRUE(same_trace(one, cuda("12_pipeline_parallel",
                                     "--micro-batch 2 --clip 1 --pp 2 --pipeline " + schedule)))
        << schedule;
  EXPECT_TRUE(different_trace(
      one, cuda("12_pipeline_parallel", "--micro-batch 2 --clip 1 --pp 2 --fault swap:recv:1")));
}

// Packed and unpacked rows are products of other shapes.
TEST_F(CudaOnCpu, DocumentsInRows) {
  for (const std::string model : {"", "--model llama-nano "}) {
    const std::string flags = model + "--documents --clip 1 --row-documents 3 --end-of-text ";
    const Trace want = on("ref", "26_packing", flags + "32");
    EXPECT_TRUE(near(cuda("26_packing", flags + "32"), want, kReordered)) << model;
    EXPECT_TRUE(near(cuda("26_packing", flags + "32 --unpacked"), want, kReordered)) << model;
    EXPECT_FALSE(near(cuda("26_packing", flags + "46"), want, kReordered)) << model;
  }
}

// What one backend saves another loads: the files know of no device.
TEST_F(CudaOnCpu, GoesOnWhereTheCpuStopped) {
  const std::string flags = kShort;
  const Trace first = trace("02_adamw", flags + "--save half", {0, kHalf});
  const Trace rest = trace("02_adamw", flags + "--load half --backend cuda-on-cpu", {kHalf, 4});
  EXPECT_TRUE(near(joined(first, rest), trace("02_adamw", flags), kReordered));
}

TEST_F(CudaOnCpu, BytesAreAsPredicted) {
  const auto expect_predicted = [&](const std::string& chapter, const std::string& flags) {
    EXPECT_TRUE(as_predicted(report(chapter, kShort + "--steps 1 --backend cuda-on-cpu " + flags)))
        << flags;
  };
  expect_predicted("16_fp8", "--precision fp8 --recompute full --clip 1");
  expect_predicted("06_checkpointing", "--optimizer adamw8bit --sample 3");
}

}  // namespace
}  // namespace ladder::test
