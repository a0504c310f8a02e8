// A disk that fails, stalls or has the process killed, for the process whose tests link this:
// bad_disk.cpp takes the place of the C library's functions that change directories.
#pragma once

#include <string>

namespace ladder {

struct BadDisk {
  /// So far: fsync, rename, mkdir, symlink, remove, fopen, pwrite, ftruncate.
  int operations = 0;
  int fail_at = -1;          ///< this one of them fails: EIO
  int die_at = -1;           ///< before this one SIGKILL ends the process
  int fsync_ms = 0;          ///< each fsync takes so long
  bool held = false;         ///< pwrite waits while this is so
  bool no_locks = false;     ///< flock: ENOLCK
  bool no_links = false;     ///< symlink: EPERM
  std::string unreadable{};  ///< files of that name: EIO
};

/// Of this process; that of a child is its own.
inline BadDisk bad_disk;

/// bad_disk is good again at the end of a test.
struct RepairDisk {
  RepairDisk() { bad_disk = {}; }
  RepairDisk(const RepairDisk&) = delete;
  RepairDisk& operator=(const RepairDisk&) = delete;
  ~RepairDisk() { bad_disk = {}; }
};

}  // namespace ladder
