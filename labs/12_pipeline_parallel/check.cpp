// Pipelines of all four kinds: whether their lists can run, what they keep, how long stages wait.
#include "labs/check.h"

#include <cmath>
#include <string>

#include "chapters/12_pipeline_parallel/pipeline.h"
#include "chapters/12_pipeline_parallel/pipeline_check.h"
#include "chapters/12_pipeline_parallel/pipeline_clock.h"
#include "labs/actions.h"

namespace ladder::lab {
namespace {

/// "right", or what is wrong with the lists. How much they keep is not asked.
std::string verdict(const Pipeline& pipeline) {
  try {
    for (int64_t s = 0; s < pipeline.stages; ++s) {
      check_all_computed(pipeline, s);
      check_messages(pipeline, s);
    }
    walk(pipeline, [](const Turn&, const std::optional<Turn>&) {});
  } catch (const CheckError& e) {
    return e.what();
  }
  return "right";
}

/// Units of time in which stages wait, all together, where each of T_F, T_B and T_W is one.
int64_t idle(const Pipeline& pipeline) {
  const PipelineClock clock = simulate(pipeline, equal_durations(pipeline, 1, 1, 1));
  return std::llround(clock.idle_share() * clock.end() * static_cast<double>(pipeline.stages));
}

void run_case(Sheet& sheet, PipelineKind kind, int64_t p, int64_t v, int64_t m) {
  Pipeline pipeline = make_pipeline(kind, p, v, m);
  for (int64_t s = 0; s < p; ++s)
    pipeline.lists[s] = returned_list(sheet, pipeline, s, [&] { return pipeline.lists[s]; });
  sheet.text("order", verdict(pipeline));
  int64_t most = 0;
  for (int64_t s = 0; s < p; ++s) most += most_in_flight(pipeline.lists[s]);
  sheet.without_idea("in_flight", p * m * pipeline.chunks);
  sheet.count("in_flight", most);
  sheet.without_idea("idle", 3 * m * pipeline.chunks * p * (p - 1));
  sheet.count("idle", idle(pipeline));
}

void cases(Sheet& sheet) {
  const int64_t few = sheet.pick<int64_t>("few", {2, 3}),
                many = sheet.pick<int64_t>("many", {4, 5});
  for (const char* name : kNames<PipelineKind>) {
    const PipelineKind kind = *named<PipelineKind>(name);
    const int64_t v = kind == PipelineKind::Interleaved ? sheet.pick<int64_t>("v", {2, 3}) : 1;
    for (const int64_t p : {few, many})
      for (const int64_t rounds : {int64_t{1}, sheet.pick<int64_t>("rounds", {2, 3})}) {
        // As many micro-batches as stages, or more; and fewer, where that can be.
        const int64_t m = rounds == 1 && v == 1 ? p - 1 : rounds * p;
        sheet.run(fmt::format("{}, p {}, v {}, m {}", name, p, v, m),
                  [&] { run_case(sheet, kind, p, v, m); });
      }
  }
}

}  // namespace
}  // namespace ladder::lab

int main() { return ladder::lab::measure(ladder::lab::cases); }
