// Files without a name. They vanish with the program, however it ends.
#pragma once

#include <cstdio>
#include <stdexcept>
#include <string>

namespace ladder {

/// The folder of temporary files has no room for a file. The message names the folder; the user can
/// name another.
class NoTemporaryFile : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Where temporary files lie: $TMPDIR, or /tmp. On some systems /tmp is held in memory; a user can
/// then name a folder on a disk.
std::string temporary_folder();

/// An empty file in that folder, to read and write; null, with errno set, if none can be created.
std::FILE* open_temporary_file();

}  // namespace ladder
