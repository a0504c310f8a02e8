#include "kernels/host_memory.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <optional>
#include <string>

namespace ladder {
namespace {

/// The number that follows `word` in a file of the system, or the first number; none if there is
/// none.
std::optional<int64_t> number_in(const std::string& path, const std::string& word = "") {
  std::ifstream file(path);
  std::string read;
  while (read != word && file >> read) continue;
  int64_t number = 0;
  if (file >> number) return number;
  return {};
}

/// The bytes that a control group has left below its limit. Its caches count as free. Inside a
/// container, the container's own group is the root of the tree.
int64_t left_in_group(const std::string& limit, const std::string& used, const std::string& stat) {
  const auto most = number_in(limit), now = number_in(used);
  if (!most || !now) return std::numeric_limits<int64_t>::max();  // "max", or no such group
  const int64_t caches =
      number_in(stat, "inactive_file").value_or(0) + number_in(stat, "active_file").value_or(0);
  return std::max<int64_t>(0, *most - std::max<int64_t>(0, *now - caches));
}

}  // namespace

int64_t host_memory_left() {
  const std::string group = "/sys/fs/cgroup/", first = group + "memory/";
  int64_t left = std::numeric_limits<int64_t>::max();
  if (const auto kilobytes = number_in("/proc/meminfo", "MemAvailable:"))
    left = 1024 * (*kilobytes + number_in("/proc/meminfo", "SwapFree:").value_or(0));
  return std::min(
      {left, left_in_group(group + "memory.max", group + "memory.current", group + "memory.stat"),
       left_in_group(first + "memory.limit_in_bytes", first + "memory.usage_in_bytes",
                     first + "memory.stat")});
}

}  // namespace ladder
