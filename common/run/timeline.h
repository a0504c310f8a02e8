// --timeline: spans of time as Chrome trace events, for ui.perfetto.dev.
#pragma once

#include <span>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "kernels/context.h"

namespace ladder {

/// Where a rank's own row ends, and with it those of threads beside it: a few tens of megabytes of
/// JSON.
constexpr size_t kMaxEvents = 200'000;

/// What one thread did.
struct TimelineRow {
  std::string name;  ///< "rank 0"
  std::span<const Event> events = {};
};

/// The rows of one rank, to be sent to the one that writes the file.
nlohmann::json rows_json(std::span<const TimelineRow> rows);

/// The file: complete events ("ph":"X") of the rows of all ranks; microseconds since the earliest.
/// All ranks of one machine read one clock. Rows of several machines do not line up: each counts
/// from its own start.
std::string timeline_json(std::span<const nlohmann::json> ranks);

}  // namespace ladder
