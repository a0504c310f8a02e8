// The planner's answers for a page in a browser: the chapter's own functions, compiled to
// WebAssembly by scripts/planner_page.py.
//
// A question is what a command line says, a word to a line, and the text of a device's file. The
// answer is JSON: what --report has, and what the page draws beside.
#include <cstddef>
#include <cstdint>
#include <exception>
#include <sstream>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "chapters/06_checkpointing/recompute.h"
#include "chapters/12_pipeline_parallel/pipeline.h"
#include "chapters/12_pipeline_parallel/proof/pipeline_clock.h"
#include "chapters/23_planner/answer.h"
#include "chapters/23_planner/device.h"
#include "chapters/23_planner/job.h"
#include "chapters/23_planner/plan_options.h"
#include "chapters/23_planner/plan_report.h"
#include "chapters/23_planner/search.h"
#include "chapters/23_planner/seconds.h"
#include "chapters/23_planner/step_time.h"
#include "chapters/23_planner/usual_memory.h"
#include "common/model/config.h"
#include "common/names.h"
#include "kernels/arena.h"

namespace ladder::planner {
namespace {

constexpr int64_t kMostDrawn = 20000;  ///< actions

Question question_of(const char* words) {
  std::vector<std::string> lines{"ch23_planner"};
  std::istringstream text(words);
  for (std::string line; std::getline(text, line);) lines.push_back(line);
  std::vector<const char*> argv;
  for (const std::string& line : lines) argv.push_back(line.c_str());
  Question question;
  question.read(static_cast<int>(argv.size()), argv.data());
  return question;
}

/// What the stages of the fastest do when; one stage has no clock, and many actions are too many to
/// draw: null.
nlohmann::json clock_json(const Answer& a) {
  const PlanLayout& l = a.best().layout;
  if (l.pp == 1 || l.pp * l.chunks * l.micros(a.job) * 3 > kMostDrawn) return nullptr;
  SizeTable sizes;
  return to_json(StepModel(a.job, a.device, l, sizes).clock());
}

nlohmann::json page_json(const Answer& a) {
  nlohmann::json page = report_json(a);
  const StageSeconds& stage = a.best().step.stage;
  page["layers"] = a.job.gpt.layers;
  page["pruned"] = pruned_text(a.device, a.found);
  page["policies"] = Recompute("none", a.job.gpt.layers, /*at_once=*/false).all();
  page["micros"] = a.best().layout.micros(a.job);
  page["stage"] = {{"number", a.best().step.slowest},
                   {"forward", stage.forward.total()},
                   {"backward", stage.backward()}};
  page["memory_stage"] = a.best().memory.stage;
  page["why_no_ladder"] = a.ladder.why;
  page["clock"] = clock_json(a);
  for (size_t i = 0; i < 5 && i + 1 < a.found.plans.size(); ++i)
    page["reasons"].push_back(reason(a.found.plans[i], a.found.plans[i + 1]));
  return page;
}

}  // namespace
}  // namespace ladder::planner

/// What the controls of the page offer, and the order of what it draws. JSON
extern "C" const char* planner_choices() {
  using namespace ladder::planner;
  static const std::string text = nlohmann::json{
      {"models", ladder::preset_names()},
      {"gradients", ladder::kNames<Gradients>},
      {"schedules", ladder::kNames<ladder::PipelineKind>},
      {"terms", ladder::kNames<Term>},
      {"memory", ladder::kMemNames}}.dump();
  return text.c_str();
}

/// @param words  of the command line, one a line
/// @param device the text of a device's file
/// @return JSON, until the next call; {"error": ...} if the program would have refused
extern "C" const char* planner_answer(const char* words, const char* device) {
  using namespace ladder::planner;
  static std::string text;
  try {
    const Question question = question_of(words);
    text = page_json(answer(question, parse_device(question.job.device, device))).dump();
  } catch (const std::exception& e) {
    text = nlohmann::json{{"error", e.what()}}.dump();
  }
  return text.c_str();
}
