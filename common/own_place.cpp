#include "common/own_place.h"

#include <algorithm>
#include <filesystem>

#include "common/error.h"
#include "common/output_file.h"

namespace ladder {

NamedPaths named_paths(const std::string& flag, const std::vector<std::string>& paths) {
  NamedPaths all;
  for (const std::string& path : paths) all.emplace_back(flag, path);
  return all;
}

void require_own_place(const NamedPath& output, const NamedPaths& taken) {
  const auto lies_in = [](const std::filesystem::path& path, const std::filesystem::path& other) {
    return std::ranges::mismatch(other, path).in1 == other.end();
  };
  if (output.second.empty()) return;
  for (const std::filesystem::path& place : {resolved(output.second), partial_of(output.second)})
    for (const auto& [flag, path] : taken) {
      if (path.empty()) continue;
      const std::filesystem::path other = resolved(path);
      if (lies_in(place, other) || lies_in(other, place))
        throw UserError("{} {}: would write in {} {}; legal is another name", output.first,
                        output.second, flag, path);
    }
}

void take_place(const NamedPath& output, NamedPaths& taken) {
  require_own_place(output, taken);
  if (output.second.empty()) return;
  taken.push_back(output);
  taken.emplace_back(output.first, partial_of(output.second).string());
}

}  // namespace ladder
