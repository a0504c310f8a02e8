#include "common/run/agreement.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "common/checksum.h"
#include "common/comm/gather_text.h"
#include "common/comm/rank_report.h"
#include "common/error.h"
#include "common/input_file.h"
#include "common/save/directory.h"
#include "common/save/manifest.h"

namespace ladder {
namespace {

namespace fs = std::filesystem;

// The bits are the same with any --threads; run_ranks() has looked at --ranks; what --config says
// is in the other flags.
constexpr std::array<std::string_view, 4> kOwnAffair = {"--ranks", "--threads", "--quiet",
                                                        "--config"};
// Rank 0 alone writes, but all ranks gather what it writes.
constexpr std::array<std::string_view, 4> kOutputs = {"--save", "--trace", "--report",
                                                      "--timeline"};

bool is_one_of(std::span<const std::string_view> all, std::string_view flag) {
  return std::find(all.begin(), all.end(), flag) != all.end();
}

/// Of the first `most` bytes of a file.
std::string content(const fs::path& path, int64_t most = INT64_MAX) {
  std::ifstream file(path, std::ios::binary);
  Checksum sum;
  std::vector<char> piece(1 << 20);
  int64_t bytes = 0;
  while (bytes < most && file) {
    file.read(piece.data(), std::min<int64_t>(std::ssize(piece), most - bytes));
    sum.update(std::as_bytes(std::span(piece).first(static_cast<size_t>(file.gcount()))));
    bytes += file.gcount();
  }
  if (bytes == 0 || file.bad()) throw UserError("{}: is empty, or cannot be read", path.string());
  return fmt::format("{} bytes with checksum {}", bytes, sum.hex());
}

// Of weights the header, with names and shapes, and the first tensors: to read all of a large file
// would take as long as to load it.
constexpr int64_t kBeginning = 1 << 24;

std::string weights_in(const fs::path& directory) {
  std::string all;
  for (const std::string& name : names_in(directory))
    if (name.ends_with(".safetensors"))
      all += fmt::format("{}{} of {}", all.empty() ? "" : ", ", name,
                         content(directory / name, kBeginning));
  return all;
}

/// What is loaded. The manifest has checksums of all that a checkpoint holds.
std::string checkpoint(const std::string& path) {
  std::error_code ignored;
  if (!fs::is_directory(path, ignored)) return content(path, kBeginning);
  const auto described = with_checkpoint(path, [](const fs::path& generation) {
    return fmt::format("of step {}, its checkpoint.json of {}", Manifest::read(generation).steps(),
                       content(Manifest::path_in(generation)));
  });
  return described ? *described : weights_in(path);
}

/// What this rank has of a flag, as ranks compare it.
std::string compared(const FlagValue& flag) {
  if (is_one_of(kOutputs, flag.flag)) return flag.value.empty() ? "not given" : "given";
  if (flag.value.empty()) return "not given";
  if (flag.flag == "--data") return content(flag.value);
  if (flag.flag == "--load") return checkpoint(flag.value);
  return flag.value;
}

using Given = std::vector<std::pair<std::string, std::string>>;

Given given(const RunOptions& options) {
  Given all;
  for (const FlagValue& flag : options.flags) {
    if (is_one_of(kOwnAffair, flag.flag)) continue;
    all.emplace_back(flag.flag, compared(flag));
  }
  // After the flags, which say more. Presets may have changed from one version to the next.
  all.emplace_back("the version", LADDER_VERSION);
  const nlohmann::json model = Manifest::sizes_of(options.gpt());
  for (const auto& [size, value] : model.items())
    all.emplace_back("the model's " + size, value.dump());
  return all;
}

/// Null: that rank's program has no such flag.
const std::string* find(const Given& flags, const std::string& flag) {
  const auto at = std::ranges::find(flags, flag, &Given::value_type::first);
  return at == flags.end() ? nullptr : &at->second;
}

/// @throws UserError if not all have for `flag` what rank 0 has
void compare(const std::vector<Given>& all, const std::string& flag) {
  const auto value_of = [&](size_t rank) {
    const std::string* value = find(all[rank], flag);
    return value ? *value : "unknown";
  };
  const std::string mine = value_of(0);
  std::string other;
  std::vector<int> ranks;
  for (int rank = 1; rank < static_cast<int>(all.size()); ++rank) {
    const std::string theirs = value_of(static_cast<size_t>(rank));
    if (theirs == mine || (!ranks.empty() && theirs != other)) continue;
    other = theirs;
    ranks.push_back(rank);
  }
  if (!ranks.empty())
    throw UserError("{} is {} here, but {} on rank{} {}; legal is the same on every rank", flag,
                    from_difference(mine, other), from_difference(other, mine),
                    ranks.size() == 1 ? "" : "s", rank_list(ranks));
}

}  // namespace

void check_agreement(Comm& comm, const RunOptions& options) {
  // In a group of its own: nothing of this counts as the run's.
  const std::unique_ptr<Comm> group = comm.split(0, comm.rank());
  // The name of a file may be no UTF-8.
  const auto replace = nlohmann::json::error_handler_t::replace;
  const std::string mine = nlohmann::json(given(options)).dump(-1, ' ', false, replace);
  const std::vector<std::string> texts = gather_text(*group, mine);
  std::vector<Given> all;
  for (const std::string& text : texts) all.push_back(nlohmann::json::parse(text).get<Given>());
  for (const Given& flags : all)
    for (const auto& [flag, ignored] : flags)
      if (&flags == &all[0] || !find(all[0], flag)) compare(all, flag);
  group->barrier();
}

}  // namespace ladder
