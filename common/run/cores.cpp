#include "common/run/cores.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <optional>
#include <sched.h>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

namespace ladder {
namespace {

namespace fs = std::filesystem;

constexpr int kNoQuota = std::numeric_limits<int>::max();

/// "150000 100000" is 2: a program that computes in bursts has use for the core that it gets half
/// of. "max 100000" and "-1 100000" are no quota, and so is what is no number.
int quota(std::istream&& quota, std::istream&& period) {
  int64_t allowed = 0, of = 0;
  if (!(quota >> allowed) || !(period >> of) || allowed <= 0 || of <= 0) return kNoQuota;
  return static_cast<int>(std::min<int64_t>((allowed + of - 1) / of, kNoQuota));
}

int quota_in(const fs::path& group) {
  std::ifstream both(group / "cpu.max");
  if (std::string allowed, of; both >> allowed >> of)
    return quota(std::istringstream(allowed), std::istringstream(of));
  return quota(std::ifstream(group / "cpu.cfs_quota_us"),
               std::ifstream(group / "cpu.cfs_period_us"));
}

/// Where a line of /proc/self/cgroup, "number:controllers:path", has its files; none: no quotas.
std::optional<fs::path> mount_of(const std::string& controllers) {
  if (controllers.empty()) return "sys/fs/cgroup";
  const std::string among = "," + controllers + ",";
  return among.find(",cpu,") == std::string::npos ? std::nullopt
                                                  : std::optional("sys/fs/cgroup/cpu");
}

}  // namespace

int cores_of(pid_t process) {
  // The kernel refuses a mask that is smaller than its own, and its own may be large.
  for (int cores = CPU_SETSIZE; cores <= 1 << 20; cores *= 2) {
    std::vector<cpu_set_t> mask(static_cast<size_t>(cores) / CPU_SETSIZE);
    const size_t bytes = mask.size() * sizeof(cpu_set_t);
    if (::sched_getaffinity(process, bytes, mask.data()) == 0)
      return std::max(1, CPU_COUNT_S(bytes, mask.data()));
  }
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

int quota_of_groups(const fs::path& root) {
  int least = kNoQuota;
  std::ifstream lines(root / "proc/self/cgroup");
  for (std::string number, controllers, path; std::getline(lines, number, ':') &&
                                              std::getline(lines, controllers, ':') &&
                                              std::getline(lines, path);) {
    const std::optional<fs::path> mount = mount_of(controllers);
    if (!mount) continue;
    // A group is bounded by those around it. In a container the path may be the host's, which is
    // not there, and the container's own files are at the top.
    fs::path group = root / *mount;
    least = std::min(least, quota_in(group));
    for (const fs::path& part : fs::path(path).relative_path())
      least = std::min(least, quota_in(group /= part));
  }
  return least;
}

}  // namespace ladder
