// Memory that is mapped from a temporary file. The machine may write it to disk when it needs the
// room.
#pragma once

#include <cstdint>

namespace ladder {

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
