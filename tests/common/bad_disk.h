// A disk that fails, stalls, or kills the process. In a program that links bad_disk.cpp, functions
// of the C library that read and change files and directories are replaced by those there.
#pragma once

#include <string>
#include <vector>

namespace ladder {

struct BadDisk {
  /// How many of these there were: fsync, rename, mkdir, symlink, remove, fopen, pwrite, ftruncate.
  int operations = 0;
  int fail_at = -1;          ///< operation number fail_at, from 0 on, fails: EIO
  int die_at = -1;           ///< SIGKILL ends the process before operation number die_at
  int fsync_ms = 0;          ///< how long each fsync takes
  bool held = false;         ///< pwrite waits as long as this is true
  bool no_locks = false;     ///< flock: ENOLCK
  bool no_links = false;     ///< symlink: EPERM
  std::string unreadable{};  ///< files of that name: EIO
  /// What was done is noted here: "fsync PATH", "rename PATH", "remove PATH".
  std::vector<std::string>* done = nullptr;
};

/// The disk of this process. A child process has a copy.
inline BadDisk bad_disk;

/// Makes bad_disk good at the beginning and at the end of a test.
struct RepairDisk {
  RepairDisk() { bad_disk = {}; }
  RepairDisk(const RepairDisk&) = delete;
  RepairDisk& operator=(const RepairDisk&) = delete;
  ~RepairDisk() { bad_disk = {}; }
};

/// Calls attempt() again and again. The first operation on the disk fails in the first call, the
/// second one in the second, and so on; in the last call none does. After each call, when the disk
/// is good again: then(what attempt() says of the failure).
template <class Attempt, class Then>
void fail_each_operation(Attempt&& attempt, Then&& then) {
  const RepairDisk repair;
  bool failed = true;
  for (int i = 0; failed; ++i) {
    bad_disk = {.fail_at = i};
    const std::string message = attempt();
    failed = bad_disk.operations > i;
    bad_disk = {};
    then(message);
  }
}

}  // namespace ladder
