// The search finds the best of all legal layouts: held against an enumeration that knows no bound.
//
// The enumeration tries every number up to the devices, the layers or the sequences, and asks
// why_not() of each. It shares no loop with the search.
#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "chapters/23_planner/device.h"
#include "chapters/23_planner/search.h"
#include "common/model/config.h"
#include "tests/common/programs.h"

namespace ladder::planner {
namespace {

/// The names of chapter 06's policies, as its README lists them.
std::vector<std::string> policies(int64_t layers) {
  std::vector<std::string> all{"none",         "sqrt", "full", "selective", "selective:attention",
                               "selective:mlp"};
  for (int64_t k = 1; k <= layers; ++k) all.push_back("every:" + std::to_string(k));
  return all;
}

/// Seconds and bytes of what fits: of the fastest, and for each number of seconds the fewest bytes.
class BruteForce {
 public:
  BruteForce(const Job& job, const Device& device, std::optional<int64_t> zero)
      : job_(job), device_(device), zero_(zero) {
    PlanLayout l;
    for (l.tp = 1; l.tp <= job.gpus; ++l.tp)
      for (l.pp = 1; l.tp * l.pp <= job.gpus && l.pp <= job.gpt.layers; ++l.pp)
        for (l.cp = 1; l.tp * l.pp * l.cp <= job.gpus; ++l.cp) {
          l.dp = job.gpus / (l.tp * l.pp * l.cp);
          if (l.gpus() == job.gpus) with_ranks(l);
        }
  }

  int64_t fit = 0;
  std::pair<double, int64_t> best{std::numeric_limits<double>::infinity(), 0};
  std::map<double, int64_t> bytes;

 private:
  void with_ranks(PlanLayout l) {
    for (l.ep = 1; l.ep <= std::max<int64_t>(1, job_.gpt.experts.count); ++l.ep)
      for (l.micro_batch = 1; l.micro_batch <= job_.batch; ++l.micro_batch)
        for (const PipelineKind schedule : {PipelineKind::GPipe, PipelineKind::OneFOneB,
                                            PipelineKind::Interleaved, PipelineKind::ZbH1})
          for (l.chunks = 1; l.chunks <= job_.gpt.layers; ++l.chunks) {
            l.schedule = schedule;
            if (why_not(job_, l).empty()) with_schedule(l);
          }
  }
  void with_schedule(PlanLayout l) {
    for (l.zero = 0; l.zero <= 3; ++l.zero) {
      if (zero_ && l.zero != *zero_) continue;
      for (l.replicas = 1; l.replicas <= (l.zero == 3 ? l.dp : 1); ++l.replicas)
        for (const std::string& policy : policies(job_.gpt.layers)) {
          l.recompute = policy;
          if (why_not(job_, l).empty()) look_at(l);
        }
      l.replicas = 1;
    }
  }
  void look_at(const PlanLayout& l) {
    SizeTable sizes;  // remembers nothing of other layouts
    const int64_t taken = most_bytes(job_, l, sizes).bytes.total();
    if (taken > device_.room()) return;
    ++fit;
    const double seconds = timed(job_, device_, l, sizes).seconds();
    best = std::min(best, std::pair(seconds, taken));
    const auto [at, fresh] = bytes.emplace(seconds, taken);
    at->second = std::min(at->second, taken);
  }

  const Job& job_;
  const Device& device_;
  std::optional<int64_t> zero_;
};

struct Question {
  const char* model;
  int64_t layers, seq_len, gpus, batch;
  double gigabytes;  ///< of a device
  const char* precision = "bf16";
  bool sequence_parallel = true;
  std::optional<int64_t> zero = {};
};

// Small ones, of which some just fit.
const std::vector<Question> kQuestions = {
    {"gpt2-124m", 6, 128, 2, 64, 80},
    {"gpt2-124m", 120, 1001, 2, 2, 80, "bf16", true, 3},
    {"gpt2-124m", 8, 1024, 8, 16, 1.6},
    {"gpt2-1558m", 8, 1024, 8, 8, 4},
    {"gpt2-1558m", 8, 1024, 8, 8, 4, "fp32"},
    {"gpt2-1558m", 8, 1024, 8, 8, 4, "bf16", false},
    {"gpt2-1558m", 12, 512, 12, 24, 3},
    {"gpt3-6.7b", 8, 2048, 16, 8, 16},
    {"gpt3-6.7b", 8, 2048, 16, 4, 20, "fp8"},
    {"llama2-7b", 8, 4096, 8, 8, 24},
    {"llama2-7b", 8, 4096, 8, 8, 13},
    {"llama3-8b", 4, 8192, 16, 2, 12},
    {"llama3-8b", 6, 6144, 12, 6, 20},
    {"llama3-8b", 8, 65536, 16, 1, 60},
    {"llama3-8b", 9, 2048, 9, 9, 30},
    {"llama3-70b", 4, 8192, 32, 8, 30},
    {"moe-tiny", 4, 64, 8, 8, 80},
    {"mixtral-8x7b", 4, 4096, 16, 4, 60},
    {"mixtral-8x7b", 2, 4096, 12, 12, 40},
    {"like-deepseek-v3", 1, 4096, 8, 4, 80},
};

Job job_of(const Question& q) {
  Job job{.gpt = preset(q.model),
          .gpus = q.gpus,
          .batch = q.batch,
          .precision = {{.name = q.precision}}};
  job.gpt.layers = q.layers;
  job.gpt.seq_len = q.seq_len;
  job.sequence_parallel = q.sequence_parallel;
  return job;
}

class AllLayouts : public testing::TestWithParam<Question> {};

TEST_P(AllLayouts, TheSearchFindsTheBest) {
  const Job job = job_of(GetParam());
  Device device = read_device(LADDER_DEVICES, "h100");
  device.memory = GetParam().gigabytes * 1e9;
  const BruteForce all(job, device, GetParam().zero);
  ASSERT_GT(all.fit, 0);
  const Found found = Search(job, device).find({.zero = GetParam().zero}, {.fastest = 1});
  ASSERT_FALSE(found.plans.empty());
  EXPECT_EQ(found.plans.front().order(), all.best) << found.plans.front().layout.text();
  // And those of which no other is faster and smaller.
  int64_t least = std::numeric_limits<int64_t>::max();
  std::vector<std::pair<double, int64_t>> front;
  for (const auto& [seconds, bytes] : all.bytes)
    if (bytes < least) front.emplace_back(seconds, least = bytes);
  std::vector<std::pair<double, int64_t>> got;
  for (const Plan* plan : pareto(found.plans)) got.push_back(plan->order());
  EXPECT_EQ(got, front);
}
// Arithmetic without threads or memory of its own: a sanitizer sees all of it in a few questions.
INSTANTIATE_TEST_SUITE_P(Questions, AllLayouts,
                         testing::ValuesIn(kQuestions.begin(), test::kSanitized
                                                                   ? kQuestions.begin() + 4
                                                                   : kQuestions.end()),
                         [](const auto& test) { return fmt::format("Q{}", test.index); });

// Of pipelines whose last stage is slower than the others, too.
TEST(Bound, IsNeverAboveTheClock) {
  const Device device = read_device(LADDER_DEVICES, "h100");
  for (const char* model : {"gpt2-124m", "llama3-8b"}) {
    Job job{.gpt = preset(model), .gpus = 48, .batch = 48, .precision = {{.name = "bf16"}}};
    job.gpt.layers = 24;
    Search search(job, device);
    SizeTable sizes;
    int64_t pipelines = 0;
    double worst = 1;
    Candidates(job, {}).each([&](const PlanLayout& l) {
      const StepModel steps(job, device, l, sizes);
      const double least = steps.least().seconds(), seconds = steps.clocked().seconds();
      EXPECT_LE(least, seconds * (1 + 1e-12)) << l.text();
      pipelines += l.pp > 1 ? 1 : 0;
      worst = std::min(worst, least / seconds);
    });
    EXPECT_GT(pipelines, 100);
    EXPECT_GT(worst, 0.5);  // or it would prune nothing
  }
}

}  // namespace
}  // namespace ladder::planner
