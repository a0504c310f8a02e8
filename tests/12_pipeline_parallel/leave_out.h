// What a mutant of chapters 12 and 13 does to the schedule of its first stage.
#pragma once

#include <algorithm>
#include <vector>

#include "chapters/12_pipeline_parallel/pipeline.h"

namespace ladder {

/// Leaves the last weight gradient of a list out. check() refuses such a list.
inline void leave_out_last_weight_gradient(std::vector<Action>& list) {
  const auto has = [](const Action& a) { return ends_flight(a.what); };
  const auto last = std::find_if(list.rbegin(), list.rend(), has);
  CHECK(last != list.rend(), "a list without weight gradients");
  if (last->what == Do::Backward)
    last->what = Do::BackwardInput;
  else
    list.erase(std::next(last).base());
}

}  // namespace ladder
