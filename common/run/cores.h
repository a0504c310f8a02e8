// How many cores a program may use.
#pragma once

#include <filesystem>

#include <sys/types.h>

namespace ladder {

/// Cores that the affinity mask of a process lets it run on (`taskset`, a container's cpuset); 0:
/// the calling thread. At least 1.
int cores_of(pid_t process);

/// Cores' worth of time that control groups allow this process, rounded up: of all groups that it
/// is in, version 2 (cpu.max) or 1 (cpu.cfs_quota_us). Without a quota as many as an int can say.
/// @param root of the file system, "/"; a test has another
int quota_of_groups(const std::filesystem::path& root = "/");

}  // namespace ladder
