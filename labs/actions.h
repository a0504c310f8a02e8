// The lists of a pipeline: as words, for a process without the student's functions, and what a
// check says of them.
#pragma once

#include <cstdint>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

#include "chapters/12_pipeline_parallel/pipeline.h"
#include "chapters/12_pipeline_parallel/proof/pipeline_check.h"
#include "common/error.h"
#include "labs/check.h"

namespace ladder::lab {

/// The list that `make` returns for a stage: three numbers an action. @throws UserError if it
/// comes from a student's program and holds what is no action of `pipeline`
template <class Make>
std::vector<Action> returned_list(Sheet& sheet, const Pipeline& pipeline, int64_t stage,
                                  Make&& make) {
  std::istringstream words(sheet.returned(fmt::format("stage {}", stage), [&] {
    std::string text;
    for (const Action& a : make())
      text += fmt::format("{} {} {} ", static_cast<int>(a.what), a.micro, a.chunk);
    return text;
  }));
  std::vector<Action> list;
  int64_t what = 0, micro = 0, chunk = 0;
  while (words >> what >> micro >> chunk) {
    if (what < 0 || what >= std::ssize(kNames<Do>))
      throw UserError("stage {}: {} is no action", stage, what);
    if (micro < 0 || micro >= pipeline.micros)
      throw UserError("stage {}: there is no micro-batch {}", stage, micro);
    if (chunk < 0 || chunk >= pipeline.chunks)
      throw UserError("stage {}: there is no chunk {}", stage, chunk);
    list.push_back({static_cast<Do>(what), micro, chunk});
  }
  return list;
}

/// "right", or what is wrong with the lists. They may keep any number of micro-batches.
inline std::string verdict(const Pipeline& pipeline) {
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

/// The most micro-batches that each stage keeps, of all stages.
inline int64_t in_flight(const Pipeline& pipeline) {
  int64_t all = 0;
  for (const auto& list : pipeline.lists) all += most_in_flight(list);
  return all;
}

}  // namespace ladder::lab
