// The command that runs a layout here: a chapter's program and its flags. Text, tokenizer, learning
// rate and the number of steps are the reader's.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "chapters/12_pipeline_parallel/pipeline.h"
#include "chapters/20_context_parallel/context.h"
#include "chapters/23_planner/job.h"
#include "chapters/23_planner/plan_options.h"
#include "common/names.h"

namespace ladder::planner {

/// Its ranks are threads, or processes where `mpirun` starts it and --ranks is left out.
/// @param chapter that runs the layout
inline std::string ladder_command(const Question& question, const Job& job, const PlanLayout& l,
                                  std::string_view chapter) {
  std::string line = fmt::format("build/cpu/bin/ch{}", chapter);
  const auto add = [&](std::string_view flag, const auto& value) {
    line += fmt::format(" {} {}", flag, value);
  };
  const auto add_degree = [&](std::string_view flag, int64_t ranks) {
    if (ranks > 1) add(flag, ranks);
  };
  const RunOptions& run = question.job.run;
  add("--model", run.model);
  for (const auto& [flag, value] : {std::pair{"--seq-len", run.seq_len},
                                    {"--layers", run.layers},
                                    {"--heads", run.heads},
                                    {"--channels", run.channels},
                                    {"--vocab", run.vocab}})
    if (value) add(flag, *value);
  add("--batch", job.batch);
  add("--micro-batch", l.micro_batch);
  add("--precision", job.precision.name);
  add("--recompute", l.recompute);
  add("--threads", job.threads);
  const bool is_mesh = l.tp * l.pp > 1;
  if (is_mesh) {
    add_degree("--tp", l.tp);
    add_degree("--pp", l.pp);
    if (l.tp > 1 && job.sequence_parallel) line += " --sequence-parallel";
    if (l.pp > 1) add("--pipeline", to_string(l.schedule));
    add_degree("--chunks", l.chunks);
  }
  // Chapters 11 to 13 multiply their degrees. The others are told how many ranks there are.
  if (is_mesh && l.cp == 1)
    add_degree("--dp", l.dp);
  else
    add_degree("--ranks", l.gpus());
  add_degree("--replicas", l.replicas);
  add_degree("--ep", l.ep);
  add_degree("--cp", l.cp);
  if (l.cp > 1) add("--context", to_string(job.context));
  return line;
}

}  // namespace ladder::planner
