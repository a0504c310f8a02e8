#include "common/run/agreement.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <map>
#include <optional>
#include <vector>

#include "common/checksum.h"
#include "common/comm/comm.h"
#include "common/comm/run_ranks.h"
#include "common/error.h"
#include "common/input_file.h"
#include "common/json.h"
#include "common/run/tokenizer.h"
#include "common/save/directory.h"
#include "common/save/manifest.h"

namespace ladder {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// --threads changes no bit. run_ranks() has checked --ranks.
constexpr std::array kOwnAffair = {"--ranks", "--threads", "--quiet"};
// Only rank 0 writes, but all ranks gather what it writes.
constexpr std::array kOutputs = {"--save", "--trace", "--report", "--timeline"};

/// What is loaded. The manifest has checksums of everything that a checkpoint holds.
std::string checkpoint(const std::string& path) {
  std::error_code ignored;
  if (!fs::is_directory(path, ignored)) return identity_of(path, FilePart::Ends);
  const auto described = with_checkpoint(path, [](const fs::path& generation) {
    return fmt::format("of step {}: {}", Manifest::read(generation).steps(),
                       identity_of(generation / kManifestFile, FilePart::All));
  });
  if (described) return *described;
  std::string all;
  for (const std::string& name : names_in(path))
    if (name.ends_with(".safetensors"))
      all += fmt::format("{}{}: {}", all.empty() ? "" : ", ", name,
                         identity_of((fs::path(path) / name).string(), FilePart::Ends));
  return all;
}

/// What this rank has for a flag, in the form in which ranks compare it.
std::string compared(const FlagValue& flag) {
  if (flag.value.empty()) return "not given";
  if (std::ranges::count(kOutputs, flag.flag) > 0) return "given";
  if (flag.flag == "--data") return identity_of(flag.value, FilePart::Pages);
  if (flag.flag == "--load") return checkpoint(flag.value);
  // Compared below, wherever it was found.
  if (flag.flag == "--tokenizer") return "given";
  return flag.value;
}

/// All flags in the order of --help: [["--lr", "0.001"], ...].
json given(const RunOptions& options) {
  json all = json::array();
  for (const FlagValue& flag : options.flags)
    if (std::ranges::count(kOwnAffair, flag.flag) == 0) all.push_back({flag.flag, compared(flag)});
  all.push_back({"the tokenizer", options.text_tokenizer ? options.text_tokenizer->hash : "none"});
  // Last, because the flags say more. Presets may differ between two versions.
  all.push_back({"the version", LADDER_VERSION});
  all.push_back({"the model", Manifest::sizes_of(options.gpt()).dump()});
  return all;
}

using Values = std::map<std::string, std::string>;

/// @throws UserError unless all ranks have the same as rank 0 for `flag`
void compare(const std::vector<Values>& all, const std::string& flag) {
  const auto value_of = [&](size_t rank) {
    const auto at = all[rank].find(flag);
    return at == all[rank].end() ? "unknown" : at->second;
  };
  const std::string mine = value_of(0);
  std::string other;
  std::vector<int> ranks;
  for (size_t rank = 1; rank < all.size(); ++rank) {
    const std::string theirs = value_of(rank);
    if (theirs == mine || (!ranks.empty() && theirs != other)) continue;
    other = theirs;
    ranks.push_back(static_cast<int>(rank));
  }
  if (!ranks.empty())
    throw UserError("{} is {} here, but {} on {}; legal is the same on every rank", flag, mine,
                    other, ranks_text(ranks));
}

}  // namespace

std::string identity_of(const std::string& path, FilePart part) {
  const int64_t bytes = part == FilePart::Pages ? 1 << 12 : 1 << 20;
  const InputFile file(path);
  std::vector<std::byte> piece(static_cast<size_t>(std::min(bytes, file.size())));
  const int64_t last = file.size() - std::ssize(piece);
  const int64_t step = part == FilePart::Pages ? std::max(bytes, last / 63) : bytes;
  Checksum sum;
  const auto add = [&](int64_t begin) {
    file.read(begin, piece);
    sum.update(piece);
  };
  add(0);
  for (int64_t at = step; part != FilePart::Ends && at < last; at += step) add(at);
  add(last);
  return fmt::format("{} bytes, {}", file.size(), sum.hex());
}

void check_agreement(Comm& comm, const RunOptions& options) {
  // A group of its own, so that none of this counts as traffic of the run.
  const std::unique_ptr<Comm> group = comm.split(0, comm.rank());
  // The name of a file may not be UTF-8.
  const std::string mine = json_text(given(options));
  std::vector<std::string> order;
  std::vector<Values> all;
  for (const std::string& text : gather_text(*group, mine)) {
    Values& values = all.emplace_back();
    for (const auto& [flag, value] :
         json::parse(text).get<std::vector<std::array<std::string, 2>>>()) {
      values[flag] = value;
      order.push_back(flag);
    }
  }
  for (const std::string& flag : order) compare(all, flag);
  group->barrier();
}

json origin_of(const RunOptions& options) {
  return {{"seed", options.seed},
          {"batch", options.batch},
          {"text", identity_of(options.data, FilePart::Ends)}};
}

std::string changed_origin(const std::string& load, const json& now) {
  const std::optional<Manifest> manifest = Manifest::find(load);
  const json then = manifest ? manifest->state.value("origin", json()) : json();
  if (!then.is_object()) return "";
  const auto differs = [&](const char* key) { return then.contains(key) && then[key] != now[key]; };
  std::vector<std::string> changed;
  for (const char* key : {"seed", "batch"})
    if (differs(key))
      changed.push_back(fmt::format("--{} {}, now {}", key, then[key].dump(), now[key].dump()));
  if (differs("text")) changed.push_back("another text");
  return fmt::format("{}", fmt::join(changed, "; "));
}

}  // namespace ladder
