// Memory that lies in a temporary file: the machine may write it out whenever it needs the room.
#pragma once

#include <cstdint>

namespace ladder {

/// `bytes` that begin a page, zero at first. The file has no name: it is gone with the memory, or
/// with the program, however that ends. Its room on the disk is taken at once.
/// @throws NoTemporaryFile if there is none
void* map_file(int64_t bytes);
void unmap_file(void* memory, int64_t bytes) noexcept;

/// Bytes of a mapped file, in whole pages.
int64_t mapped_bytes(int64_t bytes);

/// Gives the memory of a mapped file back; the bytes come again when they are read.
/// @return bytes of the pages that were in use: read or written since the last call
int64_t drop_pages(void* memory, int64_t bytes);

}  // namespace ladder
