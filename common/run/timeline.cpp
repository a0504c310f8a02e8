#include "common/run/timeline.h"

#include <algorithm>
#include <limits>

namespace ladder {
namespace {

using nlohmann::json;

double microseconds(int64_t ns) { return static_cast<double>(ns) * 1e-3; }

int64_t earliest(std::span<const json> ranks) {
  int64_t start = std::numeric_limits<int64_t>::max();
  for (const json& rows : ranks)
    for (const json& row : rows)
      for (const json& event : row.at("events")) start = std::min<int64_t>(start, event.at(1));
  return start;
}

}  // namespace

json rows_json(std::span<const TimelineRow> rows) {
  json all = json::array();
  for (const TimelineRow& row : rows) {
    json events = json::array();
    for (const Event& event : row.events)
      events.push_back({event.name, event.begin_ns, event.end_ns});
    all.push_back({{"name", row.name}, {"events", std::move(events)}});
  }
  return all;
}

std::string timeline_json(std::span<const json> ranks) {
  const int64_t start = earliest(ranks);
  std::string text = R"({"displayTimeUnit":"ms","traceEvents":[)";
  int tid = 0;
  for (const json& rows : ranks)
    for (const json& row : rows) {
      text += fmt::format(
          R"({}{{"name":"thread_name","ph":"M","pid":0,"tid":{},"args":{{"name":{}}}}})",
          tid == 0 ? "\n" : ",\n", tid, row.at("name").dump());
      for (const json& event : row.at("events")) {
        const int64_t begin = event.at(1), end = event.at(2);
        text += fmt::format(
            ",\n"
            R"({{"name":{},"ph":"X","pid":0,"tid":{},"ts":{:.3f},"dur":{:.3f}}})",
            event.at(0).dump(), tid, microseconds(begin - start), microseconds(end - begin));
      }
      ++tid;
    }
  return text + "\n]}\n";
}

}  // namespace ladder
