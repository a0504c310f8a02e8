// Files without a name, which vanish with the program, however it ends; and memory that is mapped
// from one. The machine may write it to disk when it needs the room.
#pragma once

#include <cstdint>
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

/// An empty file in a folder, to read and write; null, with errno set, if none can be created.
std::FILE* open_temporary_file(const std::string& folder = temporary_folder());

/// Maps `bytes` bytes of zeros that begin at a page. The file has no name: it vanishes with the
/// mapping or with the program, however the program ends. Its room on the disk is taken at once.
/// @throws NoTemporaryFile if there is no room
void* map_file(int64_t bytes);
void unmap_file(void* memory, int64_t bytes) noexcept;

/// Bytes of a mapped file, in whole pages.
int64_t mapped_bytes(int64_t bytes);

/// Gives back the memory of a mapped file. Its bytes are read from the disk when they are used
/// again.
/// @return bytes of the pages that were read or written since the last call
int64_t drop_pages(void* memory, int64_t bytes);

}  // namespace ladder
