// What a run shares with others: with the other ranks, and with the run that wrote the checkpoint
// from which it goes on.
#pragma once

#include <cstdint>
#include <string>

#include <nlohmann/json.hpp>

#include "common/comm/comm.h"
#include "common/run/options.h"

namespace ladder {

/// Of how much of a file a checksum is taken: all pieces of a MiB, the first and the last one, or
/// 64 pages from the first to the last one.
enum class FilePart : uint8_t { All, Ends, Pages };

/// Identifies a file by its length and a checksum: "4137850 bytes, 0123456789abcdef". Reading all
/// of it takes as long as loading it. @throws UserError if it cannot be read
std::string identity_of(const std::string& path, FilePart part);

/// Ranks that are processes are started one by one, each with its own command line, and on machines
/// with their own files. If something differed, the run would hang or train something else. This
/// compares, over all ranks, the program, its flags and what they name; of an output only whether
/// there is one. Ranks may differ in their number of threads and in --quiet. All ranks call it, and
/// none returns unless all agree.
/// @throws UserError on rank 0 that names the first flag that differs, and the ranks
void check_agreement(Comm& comm, const RunOptions& options);

/// What a checkpoint says of its run in addition to what the next step needs: {"seed": 1, "batch":
/// 16, "text": "4137850 bytes, 0123456789abcdef"}. A run may go on with others, but from there on
/// it is another run.
/// @throws UserError if the text cannot be read
nlohmann::json origin_of(const RunOptions& options);

/// "--seed 1, now 2; another text": what has changed since the checkpoint `load` was written. Empty
/// if nothing has changed, or if the checkpoint does not tell.
std::string changed_origin(const std::string& load, const nlohmann::json& now);

}  // namespace ladder
