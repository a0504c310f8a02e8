// --timeline: spans of time as Chrome trace events, for ui.perfetto.dev.
#pragma once

#include <span>
#include <string>

#include <nlohmann/json.hpp>

#include "kernels/context.h"

namespace ladder {

/// The most events of a rank's own row. When it ends there, so do the rows of its other threads.
/// This is a few tens of megabytes of JSON.
constexpr size_t kMaxEvents = 200'000;

/// What one thread did.
struct TimelineRow {
  std::string name;  ///< "rank 0"
  std::span<const Event> events = {};
};

/// When a step of a rank began.
struct StepStart {
  int64_t step;
  int64_t begin_ns;
};

/// The rows of one rank, in a form that can be sent to the rank which writes the file.
/// @param steps in order; an event belongs to the last step that began before it
nlohmann::json rows_json(std::span<const TimelineRow> rows, std::span<const StepStart> steps);

/// The file: complete events ("ph":"X") of the rows of all ranks. Times are microseconds since the
/// earliest. A rank is a process of the picture, and a row is one of its threads. Both count from
/// 1, because Perfetto takes 0 for an idle processor. `ranks` are those of rows_json(), from rank 0
/// on. All ranks of one machine read the same clock. Rows of several machines do not line up,
/// because each machine counts from its own start.
std::string timeline_json(std::span<const nlohmann::json> ranks);

}  // namespace ladder
