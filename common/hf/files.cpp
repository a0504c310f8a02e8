#include "common/hf/files.h"

#include <filesystem>
#include <map>

#include "common/error.h"
#include "common/hf/json.h"

namespace ladder {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* kWeights = "model.safetensors";
constexpr const char* kIndex = "model.safetensors.index.json";

bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

/// What to open at a path: a file of weights, or an index.
fs::path resolved_weights(const fs::path& path) {
  std::error_code ignored;
  if (!fs::is_directory(path, ignored)) return path;
  for (const char* name : {kWeights, kIndex})
    if (is_there(path / name)) return path / name;
  throw UserError("{}: holds neither a checkpoint nor {} nor {}", path.string(), kWeights, kIndex);
}

/// In which file each tensor is, by its name.
std::map<std::string, std::string> read_index(const std::string& path) {
  const json index = read_json(path);
  if (!index.is_object() || !index.contains("weight_map") || !index.at("weight_map").is_object() ||
      index.at("weight_map").empty())
    throw UserError("{}: not the index of a model: no weight_map of names and files", path);
  std::map<std::string, std::string> places;
  for (const auto& [name, file] : index.at("weight_map").items()) {
    const std::string place = file.is_string() ? file.get<std::string>() : "";
    if (place.empty() || place.find_first_of(std::string_view("/\0", 2)) != std::string::npos)
      throw UserError("{}: places {} in {}; legal are files beside it", path, name, shown(file));
    places[name] = place;
  }
  return places;
}

/// Each file holds what the index places there, and nothing else.
std::vector<SafetensorsReader> open_indexed(const std::string& path) {
  const std::map<std::string, std::string> places = read_index(path);
  std::map<std::string, size_t> expected;  // tensors of each file
  for (const auto& [name, file] : places) ++expected[file];

  std::vector<SafetensorsReader> readers;
  for (const auto& [file, count] : expected) {
    const SafetensorsReader& reader =
        readers.emplace_back((fs::path(path).parent_path() / file).string());
    for (const auto& [name, entry] : reader.entries()) {
      const auto place = places.find(name);
      if (place == places.end() || place->second != file)
        throw UserError("{}: holds {}, which {} places {}", reader.path(), name, path,
                        place == places.end() ? "nowhere" : "in " + place->second);
    }
    if (reader.entries().size() == count) continue;
    for (const auto& [name, place] : places)
      if (place == file && !reader.entries().contains(name))
        throw UserError("{}: holds no tensor {}, which {} places there", reader.path(), name, path);
  }
  return readers;
}

}  // namespace

HfFiles open_hf_files(const std::string& path) {
  const fs::path weights = resolved_weights(path);
  HfFiles files;
  if (weights.extension() == ".json") {
    files.weights = open_indexed(weights.string());
  } else {
    files.weights.emplace_back(weights.string());
  }
  const fs::path config = weights.parent_path() / "config.json";
  if (is_there(config)) files.config = config.string();
  return files;
}

}  // namespace ladder
