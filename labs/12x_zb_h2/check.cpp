// A pipeline with the student's lists: whether it can run, what it keeps, and how long stages wait
// between their first action and their last.
#include "labs/check.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include <fmt/core.h>

#include "chapters/12_pipeline_parallel/pipeline.h"
#include "chapters/12_pipeline_parallel/proof/pipeline_clock.h"
#include "labs/12x_zb_h2/zb_h2.h"
#include "labs/actions.h"

namespace ladder::lab {
namespace {

/// The units of time that all stages together wait between their first action and their last. T_F,
/// T_I and T_W are one unit each; messages take no time.
int64_t idle_within(const Pipeline& pipeline) {
  const PipelineClock clock = simulate(pipeline, equal_durations(pipeline, 1, 1, 1));
  double idle = 0;
  for (std::vector<Timed> list : clock.stages) {
    std::erase_if(list, [](const Timed& t) { return letter(t.action.what).empty(); });
    if (!list.empty())
      idle += list.back().end - list.front().begin - static_cast<double>(list.size());
  }
  return std::llround(idle);
}

/// For the student: where something is wrong, lab.py shows what a check has printed.
void print_picture(const Pipeline& pipeline) {
  const std::string picture = draw(simulate(pipeline, equal_durations(pipeline, 1, 1, 1)));
  fmt::print("p {}, m {}: a row for each stage, dots where it waits\n{}", pipeline.stages,
             pipeline.micros, picture);
}

/// @param shown whether a picture has been printed
void run_case(Sheet& sheet, int64_t p, int64_t m, bool& shown) {
  sheet.wanted([&] {
    sheet.text("order", "right");
    sheet.count("in_flight", p * (2 * p - 1));
    sheet.count("idle", 0);
  });
  sheet.without_idea("in_flight", p * m);
  sheet.without_idea("idle", idle_within(make_pipeline(PipelineKind::ZbH1, p, 1, m)));

  Pipeline pipeline{.kind = PipelineKind::ZbH1, .stages = p, .chunks = 1, .micros = m, .lists = {}};
  for (int64_t s = 0; s < p; ++s)
    pipeline.lists.push_back(with_messages(
        pipeline, s, returned_list(sheet, pipeline, s, [&] { return zb_h2(p, m, s); })));
  sheet.text("order", verdict(pipeline));
  sheet.count("in_flight", in_flight(pipeline));
  sheet.count("idle", idle_within(pipeline));
  const bool right = idle_within(pipeline) == 0 && in_flight(pipeline) <= p * (2 * p - 1);
  if (!right && !std::exchange(shown, true)) print_picture(pipeline);
}

}  // namespace

void cases(Sheet& sheet) {
  bool shown = false;
  for (const int64_t p :
       {int64_t{2}, sheet.pick<int64_t>("few", {3, 4}), sheet.pick<int64_t>("many", {5, 6, 8})})
    for (const int64_t m : {2 * p, sheet.pick<int64_t>("more", {3, 4}) * p + 1})
      sheet.run(fmt::format("p {}, m {}", p, m), [&] { run_case(sheet, p, m, shown); });
}

}  // namespace ladder::lab
