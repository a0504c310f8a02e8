#include "common/run/timeline.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <string_view>
#include <utility>

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

/// The step of an event; -1 before the first step.
int64_t step_of(const Event& event, std::span<const StepStart> steps) {
  const auto later = std::upper_bound(
      steps.begin(), steps.end(), event.begin_ns,
      [](int64_t begin_ns, const StepStart& step) { return begin_ns < step.begin_ns; });
  return later == steps.begin() ? -1 : std::prev(later)->step;
}

/// The event that names a process or a thread ("process_name", "thread_name").
std::string name_event(std::string_view kind, size_t pid, size_t tid, const json& name) {
  return fmt::format(R"({{"name":"{}","ph":"M","pid":{},"tid":{},"args":{{"name":{}}}}})", kind,
                     pid, tid, name.dump());
}

std::string span_event(const json& event, int64_t start, size_t pid, size_t tid) {
  const int64_t begin = event.at(1), end = event.at(2), step = event.at(3);
  return fmt::format(
      R"({{"name":{},"ph":"X","pid":{},"tid":{},"ts":{:.3f},"dur":{:.3f},"args":{{"step":{}}}}})",
      event.at(0).dump(), pid, tid, microseconds(begin - start), microseconds(end - begin), step);
}

}  // namespace

json rows_json(std::span<const TimelineRow> rows, std::span<const StepStart> steps) {
  json all = json::array();
  for (const TimelineRow& row : rows) {
    json events = json::array();
    for (const Event& event : row.events)
      events.push_back({event.name, event.begin_ns, event.end_ns, step_of(event, steps)});
    all.push_back({{"name", row.name}, {"events", std::move(events)}});
  }
  return all;
}

std::string timeline_json(std::span<const json> ranks) {
  const int64_t start = earliest(ranks);
  std::string text = R"({"displayTimeUnit":"ms","traceEvents":[)";
  auto add = [&, first = true](const std::string& event) mutable {
    text += (std::exchange(first, false) ? "\n" : ",\n") + event;
  };
  size_t tid = 0;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    const size_t pid = rank + 1;
    add(name_event("process_name", pid, tid + 1, fmt::format("rank {}", rank)));
    for (const json& row : ranks[rank]) {
      add(name_event("thread_name", pid, ++tid, row.at("name")));
      for (const json& event : row.at("events")) add(span_event(event, start, pid, tid));
    }
  }
  return text + "\n]}\n";
}

}  // namespace ladder
