// Every legal pipeline of a grid of stages, chunks and micro-batches, and what a mutant of chapter
// 12 does to the schedule of its first stage.
#pragma once

#include <algorithm>
#include <vector>

#include "chapters/12_pipeline_parallel/pipeline.h"

namespace ladder::test {

/// Calls f(pipeline) for p of 1, 2, 3, 4, 8; v of 2, 3, 4 where interleaved; m of 1 .. 33.
template <class F>
void for_all_pipelines(F&& f) {
  for (const char* name : kNames<PipelineKind>)
    for (const int64_t p : {1, 2, 3, 4, 8})
      for (const int64_t v : {2, 3, 4})
        for (int64_t m = 1; m <= 33; ++m) {
          const PipelineKind kind = *named<PipelineKind>(name);
          const bool interleaved = p > 1 && kind == PipelineKind::Interleaved;
          if (interleaved ? m % p != 0 : v > 2) continue;
          f(make_pipeline(kind, p, v, m));
        }
}

/// Leaves the last weight gradient of a list out. check_pipeline() refuses such a list.
inline void leave_out_last_weight_gradient(std::vector<Action>& list) {
  const auto has = [](const Action& a) { return ends_flight(a.what); };
  const auto last = std::find_if(list.rbegin(), list.rend(), has);
  CHECK(last != list.rend(), "a list without weight gradients");
  if (last->what == Do::Backward)
    last->what = Do::BackwardInput;
  else
    list.erase(std::next(last).base());
}

/// "1f1b, p 4, v 1, m 8"
inline std::string title(const Pipeline& pipeline) {
  return fmt::format("{}, p {}, v {}, m {}", to_string(pipeline.kind), pipeline.stages,
                     pipeline.chunks, pipeline.micros);
}

}  // namespace ladder::test
