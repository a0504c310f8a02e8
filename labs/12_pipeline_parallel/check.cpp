// Pipelines of all four kinds: whether their lists can run, what they keep, how long stages wait.
#include "labs/check.h"

#include <cmath>
#include <string>
#include <vector>

#include "chapters/12_pipeline_parallel/pipeline.h"
#include "chapters/12_pipeline_parallel/proof/pipeline_clock.h"
#include "labs/actions.h"

namespace ladder::lab {
namespace {

/// The units of time that all stages together wait. T_F, T_I and T_W are one unit each.
int64_t idle(const Pipeline& pipeline) {
  const PipelineClock clock = simulate(pipeline, equal_durations(pipeline, 1, 1, 1));
  return std::llround(clock.idle_share() * clock.end() * static_cast<double>(pipeline.stages));
}

/// The same without the idea of a schedule. For gpipe and 1f1b that is stages that take turns; for
/// the other two it is 1f1b, whose bubble they make smaller.
int64_t idle_without(PipelineKind kind, int64_t p, int64_t v, int64_t m) {
  const bool turns = kind == PipelineKind::GPipe || kind == PipelineKind::OneFOneB;
  return 3 * (turns ? m : v) * p * (p - 1);
}

void run_case(Sheet& sheet, PipelineKind kind, int64_t p, int64_t v, int64_t m) {
  Pipeline pipeline = make_pipeline(kind, p, v, m);
  for (int64_t s = 0; s < p; ++s)
    pipeline.lists[s] = returned_list(sheet, pipeline, s, [&] { return pipeline.lists[s]; });
  sheet.text("order", verdict(pipeline));
  sheet.without_idea("in_flight", p * m * pipeline.chunks);
  sheet.count("in_flight", in_flight(pipeline));
  sheet.without_idea("idle", idle_without(kind, p, v, m));
  sheet.count("idle", idle(pipeline));
}

/// All actions of a kind, in the order of nth(). A pipeline has several chunks, or cuts B in two,
/// not both.
void run_nth(Sheet& sheet, int64_t p, int64_t v) {
  const Pipeline pipeline{.kind = v > 1 ? PipelineKind::Interleaved : PipelineKind::ZbH1,
                          .stages = p,
                          .chunks = v,
                          .micros = 2 * p,
                          .lists = {}};
  for (const Do what : {Do::Forward, Do::Backward, Do::BackwardInput, Do::BackwardWeight})
    for (int64_t k = 0; k < 2 * p * v; ++k) {
      const std::string which = fmt::format("{} {} of p {}, v {}", to_string(what), k, p, v);
      sheet.text("nth/all: " + which,
                 sheet.returned(which, [&] { return to_string(nth(pipeline, what, k)); }));
    }
}

}  // namespace

void cases(Sheet& sheet) {
  const int64_t few = sheet.pick<int64_t>("few", {2, 3}),
                many = sheet.pick<int64_t>("many", {4, 5}),
                rounds = sheet.pick<int64_t>("rounds", {2, 3});
  sheet.run("nth", [&] {
    for (const int64_t v : {1, 2, 3}) run_nth(sheet, few, v);
  });
  for (const char* name : kNames<PipelineKind>) {
    const PipelineKind kind = *named<PipelineKind>(name);
    const int64_t v = kind == PipelineKind::Interleaved ? sheet.pick<int64_t>("v", {2, 3}) : 1;
    for (const int64_t p : {few, many}) {
      std::vector<int64_t> micros{rounds * p};
      // Also as many micro-batches as stages, or, where it is legal, fewer than the stages behind
      // the first. For gpipe these cases would show nothing new.
      if (kind != PipelineKind::GPipe)
        micros.push_back(v == 1 && p == many ? sheet.pick<int64_t>("m", {1, 2}) : p);
      for (const int64_t m : micros)
        sheet.run(fmt::format("{}, p {}, v {}, m {}", name, p, v, m),
                  [&] { run_case(sheet, kind, p, v, m); });
    }
  }
}

}  // namespace ladder::lab
