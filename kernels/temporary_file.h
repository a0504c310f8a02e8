// Files without a name: gone with the program, however that ends.
#pragma once

#include <cstdio>
#include <stdexcept>
#include <string>

namespace ladder {

/// A file that the folder of temporary files has no room for. The message names the folder; the
/// user can name another.
class NoTemporaryFile : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Where temporary files lie: $TMPDIR, or /tmp. Where /tmp is itself held in memory, a user can
/// name a folder on a disk.
std::string temporary_folder();

/// An empty file there, to read and write; null, and errno says why, if none can be created.
std::FILE* open_temporary_file();

}  // namespace ladder
