#include "common/run/origin.h"

#include <algorithm>
#include <optional>
#include <vector>

#include <fmt/format.h>

#include "common/checksum.h"
#include "common/input_file.h"
#include "common/save/manifest.h"

namespace ladder {
namespace {

using nlohmann::json;

constexpr int64_t kEndBytes = 1 << 20;

std::string identity_of(const std::string& path) {
  const InputFile file(path);
  std::vector<std::byte> bytes(static_cast<size_t>(std::min(kEndBytes, file.size())));
  Checksum sum;
  for (const int64_t begin : {int64_t{0}, file.size() - std::ssize(bytes)}) {
    file.read(begin, bytes);
    sum.update(bytes);
  }
  return fmt::format("{} bytes, {}", file.size(), sum.hex());
}

}  // namespace

json origin_of(const RunOptions& options) {
  return {{"seed", options.seed}, {"text", identity_of(options.data)}};
}

std::string changed_origin(const std::string& load, const json& now) {
  const std::optional<Manifest> manifest = Manifest::find(load);
  const json then = manifest ? manifest->state.value("origin", json()) : json();
  if (!then.is_object()) return "";
  const auto differs = [&](const char* key) { return then.contains(key) && then[key] != now[key]; };
  std::string changed;
  if (differs("seed"))
    changed = fmt::format("--seed {}, now {}", then["seed"].dump(), now["seed"].dump());
  if (differs("text")) changed += changed.empty() ? "another text" : "; another text";
  return changed;
}

}  // namespace ladder
