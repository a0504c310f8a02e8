// What a run writes must be nothing that it reads, nor what something else writes.
#pragma once

#include <filesystem>
#include <string>

#include "common/run/options.h"

namespace ladder {

/// The directory that a path names: the same for "sx/" and "sx".
std::filesystem::path resolved_dir(const std::string& path);

/// Looks at --trace, --report and --timeline, and at the NAME.partial of each: by name, and by
/// file, so that links count.
/// @throws UserError if one is an input, lies in the directory of --load or --save, is named twice,
///         or is where the shell sends what the program prints
void check_outputs(const RunOptions& options);

}  // namespace ladder
