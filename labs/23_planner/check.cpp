// Bytes by both accounts, the time of messages between replicas, and a search, on jobs, devices and
// layouts that are drawn. All of it follows from what the functions return.
#include "labs/check.h"

#include <cmath>
#include <sstream>
#include <string>
#include <vector>

#include "chapters/23_planner/ladder_memory.h"
#include "chapters/23_planner/legal.h"
#include "chapters/23_planner/search.h"
#include "chapters/23_planner/step_time.h"
#include "chapters/23_planner/usual_memory.h"

namespace ladder::lab {
namespace {

using namespace planner;
using planner::Device;

Job make_job(const std::string& model, const std::string& precision, int64_t gpus, int64_t batch) {
  Job job{.gpt = preset(model), .gpus = gpus, .batch = batch, .precision = {}};
  job.precision.name = precision;
  return job;
}

/// Writes a row for each category of memory. A layout is right as a whole or wrong.
void write_bytes(Sheet& sheet, const std::string& gate, const std::function<MemoryBytes()>& make) {
  std::istringstream words(
      sheet.returned("bytes", [&] { return fmt::format("{}", fmt::join(make().bytes, " ")); }));
  int64_t bytes = 0;
  for (size_t i = 0; i < kMemCount && words >> bytes; ++i)
    sheet.text(fmt::format("{}: {}", gate, kMemNames[i]), fmt::format("{} bytes", bytes));
}

void run_states(Sheet& sheet) {
  const auto ranks = sheet.pick<int64_t>("ranks of states", {4, 8});
  for (const Gradients gradients : {Gradients::Fp32, Gradients::Narrow, Gradients::Both})
    for (const char* precision : {"fp32", "bf16"})
      for (int zero = 0; zero <= 3; ++zero) {
        if (precision == std::string("fp32") && gradients != Gradients::Fp32) continue;
        Job job = make_job(sheet.pick("model", {"nano", "llama-nano"}), precision, ranks, 16);
        job.gradients = gradients;
        const PlanLayout l{.dp = ranks, .zero = zero};
        const std::string name =
            fmt::format("ZeRO-{}, {}, gradients {}", zero, precision, to_string(gradients));
        sheet.run(name, [&] {
          SizeTable sizes;
          write_bytes(sheet, "states/one rank",
                      [&] { return state_bytes(job, l, sizes.of(job, l, 0)); });
        });
      }
}

/// Whoever has no buffers of one kind of ranks is wrong in its layouts, and right in others.
void run_buffers(Sheet& sheet, const std::string& ranks,
                 const std::vector<std::array<int64_t, 3>>& sizes) {
  sheet.run("buffers of " + ranks, [&] {
    for (const auto& [tp, pp, cp] : sizes)
      for (const char* precision : {"fp32", "bf16"})
        for (const bool sequence_parallel : {true, false}) {
          if (!sequence_parallel && tp > 1 && cp > 1) continue;
          Job job = make_job("llama-nano", precision, tp * pp * cp, 8);
          job.sequence_parallel = sequence_parallel;
          const PlanLayout l{
              .tp = tp, .pp = pp, .cp = cp, .micro_batch = sheet.pick("mb", {2L, 4L})};
          const std::string name =
              fmt::format("{}, {}, sequence parallel {}", l.text(), precision, sequence_parallel);
          sheet.text("buffers/bytes: " + name, sheet.returned(name, [&] {
            return fmt::format("{}", buffer_bytes(job, l, activations_of(job, l, 0)));
          }));
        }
  });
}

/// One run of chapters 06 to 10, 16, 21 and 30. The name of the case is the command that runs it.
void run_counted(Sheet& sheet, const Job& job, const PlanLayout& l) {
  const std::string name = fmt::format(
      "ch{} --model {} --batch {} --precision {} --ranks {} --micro-batch {} "
      "--recompute {}{}",
      ladder_chapter(job, l), job.gpt.name, job.batch, job.precision.name, l.dp, l.micro_batch,
      l.recompute, l.replicas > 1 ? fmt::format(" --replicas {}", l.replicas) : "");
  sheet.run(name, [&] {
    write_bytes(sheet, "counted/one rank", [&] { return LadderMemory(job, l).of(0); });
  });
}

void run_all_counted(Sheet& sheet) {
  const auto ranks = sheet.pick<int64_t>("ranks", {4, 8});
  const auto* const model = sheet.pick("counted model", {"nano", "llama-nano"});
  for (const auto& [precision, recompute, micro] :
       {std::tuple{"fp32", "none", int64_t{1}}, {"bf16", "full", sheet.pick("mbs", {1L, 2L})}}) {
    const Job job = make_job(model, precision, ranks, 4 * ranks);
    for (int zero = 0; zero <= 3; ++zero)
      run_counted(sheet, job,
                  {.dp = ranks, .zero = zero, .recompute = recompute, .micro_batch = micro});
    run_counted(sheet, make_job(model, precision, 1, 8),
                {.recompute = recompute, .micro_batch = 2});
    run_counted(
        sheet, job,
        {.dp = ranks, .zero = 3, .replicas = 2, .recompute = recompute, .micro_batch = micro});
    run_counted(sheet, make_job("moe-nano", precision, 1, 4), {.recompute = recompute});
  }
  run_counted(sheet, make_job(model, "fp8", 2, 8), {.dp = 2, .recompute = "full"});
}

/// Eight devices a node. @param memory of a device, in GB
Device make_device(double memory) {
  return {.name = "lab",
          .fp32 = 6e13,
          .bf16 = 3e14,
          .memory = 1e9 * memory,
          .memory_rate = 2e12,
          .cache_rate = 1e12,
          .node = 8,
          .node_rate = 2e11,
          .node_latency = 3e-6,
          .net_rate = 2.5e10,
          .net_latency = 1e-5,
          .watts = 400,
          .products = 0.6,
          .attention = 0.4,
          .memory_share = 0.8,
          .links = 0.8,
          .overlap = 0.4,
          .usable = 0.95};
}

void run_data(Sheet& sheet) {
  const auto micro = sheet.pick<int64_t>("micro-batch", {1, 2});
  for (int zero = 0; zero <= 3; ++zero)
    sheet.run(fmt::format("messages of ZeRO-{}", zero), [&] {
      for (const auto& [dp, pp] : {std::pair<int64_t, int64_t>{1, 1}, {8, 1}, {64, 1}, {8, 4}}) {
        if (zero > (dp == 1 ? 0 : pp == 1 ? 3 : 1)) continue;
        Job job = make_job("gpt2-350m", "bf16", dp * pp, 8 * dp);
        job.gradients = dp == 8 ? Gradients::Narrow : Gradients::Fp32;
        PlanLayout l{.pp = pp, .dp = dp, .zero = zero, .micro_batch = micro};
        if (zero == 3 && dp == 64) l.replicas = 8;
        sheet.text("data/seconds: " + l.text(), sheet.returned(l.text(), [&] {
          const Device device = make_device(40);
          SizeTable sizes;
          return fmt::format("{:.6e}", StepModel(job, device, l, sizes).step().terms[Term::Data]);
        }));
      }
    });
}

/// Offers drawn plans one after the other: which of them are taken, and which are left at the end.
std::string ranked(const Sheet& sheet, size_t fastest, bool front) {
  Ranking best({.fastest = fastest, .front = front});
  const std::vector<float> drawn = sheet.normals("plans", 120, fastest);
  std::string said;
  for (size_t i = 0; i < drawn.size(); i += 2) {
    // So few values that with each seed a plan is as fast as the last of those that are known.
    const auto seconds = std::floor(30 + 3 * drawn[i]), bytes = std::floor(30 + 3 * drawn[i + 1]);
    Plan plan;
    plan.step.terms[Term::Products] = seconds;
    plan.memory.bytes[Mem::Param] = static_cast<int64_t>(bytes);
    const bool takes = best.takes(plan.seconds(), plan.bytes());
    said += takes ? "+" : "-";
    if (takes) best.add(plan);
  }
  for (const Plan& plan : best.take())
    said += fmt::format(" {} s {} B,", plan.seconds(), plan.bytes());
  return said;
}

void run_ranking(Sheet& sheet, size_t fastest) {
  sheet.run(fmt::format("{} fastest", fastest), [&] {
    for (const bool front : {false, true}) {
      const std::string name = front ? "and the front" : "no front";
      sheet.text("ranking/plans: " + name,
                 sheet.returned(name, [&] { return ranked(sheet, fastest, front); }));
    }
  });
}

std::string words_of(const PlanLayout& l) {
  return fmt::format("{} {} {} {} {} {} {} {} {} {} {}", l.tp, l.pp, l.dp, l.cp, l.ep, l.zero,
                     l.replicas, l.micro_batch, l.chunks, static_cast<int>(l.schedule),
                     l.recompute);
}
PlanLayout layout_of(const std::string& text) {
  std::istringstream words(text);
  PlanLayout l;
  int schedule = -1;
  words >> l.tp >> l.pp >> l.dp >> l.cp >> l.ep >> l.zero >> l.replicas >> l.micro_batch >>
      l.chunks >> schedule >> l.recompute;
  for (const int64_t n : {l.tp, l.pp, l.dp, l.cp, l.ep, l.replicas, l.micro_batch, l.chunks})
    if (!words || n < 1 || n > 4096 || l.zero < 0 || l.zero > 3 || schedule < 0 ||
        schedule >= std::ssize(kNames<PipelineKind>))
      throw UserError("{} is no layout", text);
  l.schedule = static_cast<PipelineKind>(schedule);
  return l;
}

/// The figure to beat is that of a layout that always fits: everything sharded, everything
/// recomputed.
void run_beat(Sheet& sheet, const std::string& model, int64_t gpus, double memory) {
  Job job = make_job(model, "bf16", gpus, 4 * gpus);
  const Device device = make_device(memory);
  const std::string name = fmt::format("{} on {} of {} GB", model, gpus, memory);
  Found found;
  sheet.run(name, [&] {
    SizeTable sizes;
    const auto microseconds = [&](const PlanLayout& l) {
      if (const std::string why = why_not(job, l); !why.empty())
        throw UserError("{} is not legal: {}", l.text(), why);
      if (const int64_t bytes = most_bytes(job, l, sizes).bytes.total(); bytes > device.room())
        throw UserError("{} takes {} bytes of {}", l.text(), bytes, device.room());
      return std::llround(1e6 * timed(job, device, l, sizes).seconds());
    };
    const std::string words = sheet.returned("layout", [&] {
      found = Search(job, device).find({}, {.fastest = 1, .front = false});
      if (found.plans.empty()) throw UserError("find() has no plan");
      return words_of(found.plans.front().layout);
    });
    sheet.without_idea("beat", microseconds({.dp = gpus, .zero = 3, .recompute = "full"}));
    sheet.count("beat", microseconds(layout_of(words)));
  });
  // A case of its own: where it is wrong, the fastest layout counts all the same.
  sheet.run(name + ", counted", [&] {
    sheet.text("found/legal", sheet.returned("counts", [&] {
      const int64_t rest = found.legal - found.too_large - found.beaten - std::ssize(found.plans);
      return fmt::format("{} legal, {} more than all others", found.legal, rest - found.too_slow);
    }));
  });
}

}  // namespace

void cases(Sheet& sheet) {
  run_states(sheet);
  run_buffers(sheet, "tensor ranks", {{1, 1, 1}, {2, 1, 1}, {4, 1, 1}});
  run_buffers(sheet, "context ranks", {{1, 1, 2}, {2, 1, 2}});
  run_buffers(sheet, "pipeline ranks", {{1, 4, 1}, {2, 2, 1}, {2, 2, 2}, {4, 2, 1}});
  run_all_counted(sheet);
  run_data(sheet);
  for (const size_t fastest : {1, 4, 12}) run_ranking(sheet, fastest);
  run_beat(sheet, "gpt2-774m", 8, sheet.pick<double>("small", {6, 8}));
  run_beat(sheet, "gpt2-1558m", 16, sheet.pick<double>("middle", {8, 10}));
  run_beat(sheet, "llama2-7b", 16, sheet.pick<double>("large", {20, 24}));
}

}  // namespace ladder::lab
