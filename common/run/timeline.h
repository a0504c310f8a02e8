// --timeline: spans of time as Chrome trace events, for ui.perfetto.dev.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "kernels/context.h"

namespace ladder {

/// Where recording stops: a few tens of megabytes of JSON.
constexpr size_t kMaxEvents = 200'000;

/// JSON of complete events ("ph":"X"), one row for each rank; microseconds since the earliest.
std::string timeline_json(std::span<const std::vector<Event>> ranks);

}  // namespace ladder
