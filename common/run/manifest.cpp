#include "common/run/manifest.h"

#include <fstream>

#include "common/error.h"
#include "common/run/output_file.h"

namespace ladder {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* kFormat = "ladder checkpoint 1";

json to_json(const Manifest::File& file) {
  return {{"name", file.name}, {"bytes", file.sum.bytes}, {"xxh3", file.sum.xxh3}};
}

Manifest::File file_from(const json& value) {
  const auto name = value.at("name").get<std::string>();
  // A manifest decides what gets deleted: never outside its directory.
  if (fs::path(name) != fs::path(name).filename()) throw UserError("{} is no file name", name);
  return {.name = name,
          .sum = {.bytes = value.at("bytes").get<int64_t>(),
                  .xxh3 = value.at("xxh3").get<std::string>()}};
}

void check_step(const json& step) {
  if (!step.is_number_integer() || step.get<int64_t>() < 0)
    throw UserError("its step is {}", step.dump());
}

Manifest from_json(const json& value) {
  if (value.at("format").get<std::string>() != kFormat) throw UserError("unknown format");
  check_step(value.at("state").at("step"));
  return {.model = value.at("model"),
          .state = value.at("state"),
          .weights = file_from(value.at("weights")),
          .optimizer = file_from(value.at("optimizer"))};
}

}  // namespace

int64_t Manifest::steps() const { return state.at("step"); }

json Manifest::sizes_of(const GptConfig& config) {
  return {{"layers", config.layers},
          {"heads", config.heads},
          {"channels", config.channels},
          {"positions", config.positions},
          {"vocab", config.vocab}};
}

fs::path Manifest::path_in(const fs::path& dir) { return dir / "checkpoint.json"; }

Manifest Manifest::read(const fs::path& dir) {
  const std::string path = path_in(dir).string();
  std::error_code ignored;  // to open a pipe would be to wait
  std::ifstream file;
  if (fs::is_regular_file(path, ignored)) file.open(path);
  if (!file.is_open()) throw UserError("{}: no such file, or it cannot be read", path);
  try {
    return from_json(json::parse(file));
  } catch (const json::exception&) {
    throw UserError("{}: not a checkpoint of Ladder, or truncated", path);
  } catch (const UserError& e) {
    throw UserError("{}: not a checkpoint of Ladder: {}", path, e.what());
  }
}

std::optional<Manifest> Manifest::find(const fs::path& dir) {
  std::error_code ignored;
  if (!fs::exists(path_in(dir), ignored)) return std::nullopt;
  return read(dir);
}

void Manifest::write(const fs::path& dir) const {
  const json value = {{"format", kFormat},
                      {"model", model},
                      {"state", state},
                      {"weights", to_json(weights)},
                      {"optimizer", to_json(optimizer)}};
  OutputFile file(path_in(dir).string(), "checkpoint");
  file.write(value.dump(2) + "\n");
  file.commit();
}

}  // namespace ladder
