#include "common/run/timeline.h"

#include <algorithm>
#include <limits>

#include <nlohmann/json.hpp>

namespace ladder {
namespace {

double microseconds(int64_t ns) { return static_cast<double>(ns) * 1e-3; }

std::string quoted(const std::string& text) { return nlohmann::json(text).dump(); }

}  // namespace

std::string timeline_json(std::span<const std::vector<Event>> ranks) {
  int64_t start = std::numeric_limits<int64_t>::max();
  for (const auto& events : ranks)
    for (const Event& event : events) start = std::min(start, event.begin_ns);

  std::string text = R"({"displayTimeUnit":"ms","traceEvents":[)";
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    text += fmt::format(
        R"({}{{"name":"thread_name","ph":"M","pid":0,"tid":{},"args":{{"name":"rank {}"}}}})",
        rank == 0 ? "\n" : ",\n", rank, rank);
    for (const Event& event : ranks[rank])
      text += fmt::format(
          ",\n"
          R"({{"name":{},"ph":"X","pid":0,"tid":{},"ts":{:.3f},"dur":{:.3f}}})",
          quoted(event.name), rank, microseconds(event.begin_ns - start),
          microseconds(event.end_ns - event.begin_ns));
  }
  return text + "\n]}\n";
}

}  // namespace ladder
