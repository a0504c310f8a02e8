// Cores that a program may use: what the affinity mask and the quotas of control groups say.
#include <limits>
#include <sched.h>
#include <thread>

#include "common/run/options.h"
#include "tests/common/run_files.h"

namespace ladder {
namespace {

constexpr int kNoQuota = std::numeric_limits<int>::max();

TEST(Cores, OfTheMask) {
  std::thread([] {
    cpu_set_t first, all;
    ASSERT_EQ(::sched_getaffinity(0, sizeof all, &all), 0);
    EXPECT_EQ(cores_of(0), CPU_COUNT(&all));
    CPU_ZERO(&first);
    for (int core = 0; CPU_COUNT(&first) == 0; ++core)
      if (CPU_ISSET(core, &all)) CPU_SET(core, &first);
    ASSERT_EQ(::sched_setaffinity(0, sizeof first, &first), 0);
    EXPECT_EQ(cores_of(0), 1);
  }).join();
}

class Quotas : public testing::Test {
 protected:
  void plant(const std::string& name, const std::string& text) {
    const std::filesystem::path path = dir_ / name;
    std::filesystem::create_directories(path.parent_path());
    write_file(path, text);
  }
  int quota() const { return quota_of_groups(dir_.path()); }
  TempDir dir_;
};

TEST_F(Quotas, NoneAreNone) {
  EXPECT_EQ(quota(), kNoQuota);
  plant("proc/self/cgroup", "0::/user/run\n");
  EXPECT_EQ(quota(), kNoQuota);
  plant("sys/fs/cgroup/user/cpu.max", "max 100000\n");
  EXPECT_EQ(quota(), kNoQuota);
}

TEST_F(Quotas, OfGroups) {
  plant("proc/self/cgroup", "0::/user/run\n");
  plant("sys/fs/cgroup/user/run/cpu.max", "max 100000\n");
  plant("sys/fs/cgroup/user/cpu.max", "250000 100000\n");  // of a group around it
  EXPECT_EQ(quota(), 3);
  plant("sys/fs/cgroup/user/run/cpu.max", "5000 100000\n");
  EXPECT_EQ(quota(), 1);
}

// The path is the host's, the files are the container's.
TEST_F(Quotas, OfAContainer) {
  plant("proc/self/cgroup", "0::/docker/1234\n");
  plant("sys/fs/cgroup/cpu.max", "200000 100000\n");
  EXPECT_EQ(quota(), 2);
}

}  // namespace
}  // namespace ladder
