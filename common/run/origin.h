// What a checkpoint tells of the run that wrote it, beside what the next step needs: its seed and
// its text. Going on with others is legal, and another run from there on: it is said.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

#include "common/run/options.h"

namespace ladder {

/// {"seed": 1, "text": "4137850 bytes, 0123456789abcdef"}: a text is known by its length, and by
/// the checksum of its first and last 2^20 bytes. @throws UserError if it cannot be read
nlohmann::json origin_of(const RunOptions& options);

/// "--seed 1, now 2; another text": what has changed since the checkpoint `load` was written.
/// Empty: nothing, or it does not tell.
std::string changed_origin(const std::string& load, const nlohmann::json& now);

}  // namespace ladder
