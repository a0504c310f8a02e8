// An output must not overwrite what the program reads, nor another output.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace ladder {

/// A flag and the file or directory that it names; an empty name is none.
using NamedPath = std::pair<std::string, std::string>;
using NamedPaths = std::vector<NamedPath>;

/// (flag, path) of each path.
NamedPaths named_paths(const std::string& flag, const std::vector<std::string>& paths);

/// @throws UserError if `output` or its NAME.partial is one of `taken`, or one lies in the other
void require_own_place(const NamedPath& output, const NamedPaths& taken);

/// The same, and `output` and its NAME.partial join `taken`. @throws UserError
void take_place(const NamedPath& output, NamedPaths& taken);

}  // namespace ladder
