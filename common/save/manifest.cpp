#include "common/save/manifest.h"

#include <span>
#include <vector>

#include "common/error.h"
#include "common/input_file.h"
#include "common/json.h"
#include "common/output_file.h"
#include "common/save/directory.h"

namespace ladder {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* kFormat = "ladder checkpoint 3";

/// `manifest` as text, with a checksum added. The checksum covers everything before it.
std::string sealed(const json& manifest) {
  std::string text = json_text(manifest, 2);
  text.resize(text.size() - 2);  // "\n}"
  text += ",\n  \"xxh3\": ";
  Checksum checksum;
  checksum.update(std::as_bytes(std::span(text)));
  return text + fmt::format("\"{}\"\n}}\n", checksum.hex());
}

std::map<std::string, FileSum> files_from(const json& manifest) {
  std::map<std::string, FileSum> files;
  for (const auto& [name, sum] : manifest.at("files").items()) {
    if (name != kOptimizerFile && name != kAdapterFile && name != kWeightsFile)
      throw UserError("it has a file {}", shown(json(name)));
    files[name] = {.bytes = sum.at("bytes"), .hex = sum.at("crc32c")};
  }
  if (files.size() != 2 || !files.contains(kOptimizerFile))
    throw UserError("it lacks the file of the optimizer, or that of the weights");
  return files;
}

Manifest from_text(const std::string& text) {
  json value = parse_json(text);
  const auto format = value.at("format").get<std::string>();
  if (format != kFormat) throw UserError("its format is {}; legal is {}", shown(format), kFormat);
  value.erase("xxh3");
  if (sealed(value) != text) throw UserError("it is damaged");
  try {
    count_in(value.at("state").at("step"));
  } catch (const UserError& e) {
    throw UserError("its step: {}", e.what());
  }
  return {.model = value.at("model"), .state = value.at("state"), .files = files_from(value)};
}

}  // namespace

int64_t count_in(const json& value) {
  const bool legal = value.is_number_integer() && value >= 0 && value <= kMaxCount;
  if (!legal) throw UserError("{} is no number from 0 to {}", shown(value), kMaxCount);
  return value.get<int64_t>();
}

int64_t Manifest::steps() const { return state.at("step"); }

json Manifest::sizes_of(const GptConfig& config) {
  json sizes = {{"layers", config.layers},
                {"heads", config.heads},
                {"channels", config.channels},
                {"positions", config.positions},
                {"vocab", config.vocab}};
  if (config.tied_head) sizes["tied_head"] = true;
  if (config.adapter_rank > 0) sizes["adapter_rank"] = config.adapter_rank;
  // Sizes that are as in GPT-2 are left out.
  if (config.groups() != config.heads) sizes["kv_heads"] = config.groups();
  if (config.expert_inner() != 4 * config.channels) sizes["hidden"] = config.expert_inner();
  if (const Experts& e = config.experts; e.count > 0)
    sizes["experts"] = {{"count", e.count},
                        {"chosen", e.chosen},
                        {"shared", e.shared},
                        {"router", e.router == Router::Softmax ? "softmax" : "sigmoid"},
                        {"renormalize", e.renormalize}};
  if (config.norm == Norm::Rms) sizes["norm"] = "rms";
  if (config.mlp == Mlp::SwiGlu) sizes["mlp"] = "swiglu";
  if (!config.bias) sizes["bias"] = false;
  if (config.position == Position::Learned) return sizes;
  sizes.erase("positions");
  sizes["position"] = "rope";
  sizes["theta"] = config.rope.theta;
  if (config.rope.factor != 1)
    sizes["rope"] = {config.rope.factor, config.rope.low, config.rope.high, config.rope.original};
  return sizes;
}

GptConfig Manifest::config_of(const json& sizes, int64_t seq_len) {
  GptConfig config{.name = "saved",
                   .layers = sizes.at("layers"),
                   .heads = sizes.at("heads"),
                   .channels = sizes.at("channels"),
                   .seq_len = seq_len,
                   .positions = sizes.value("positions", seq_len),
                   .vocab = sizes.at("vocab"),
                   .padded_vocab = padded(sizes.at("vocab")),
                   .tied_head = sizes.value("tied_head", false),
                   .kv_heads = sizes.value("kv_heads", int64_t{0}),
                   .hidden = sizes.value("hidden", int64_t{0}),
                   .norm = sizes.contains("norm") ? Norm::Rms : Norm::Layer,
                   .mlp = sizes.contains("mlp") ? Mlp::SwiGlu : Mlp::Gelu,
                   .position = sizes.contains("position") ? Position::Rope : Position::Learned,
                   .bias = sizes.value("bias", true)};
  if (config.position == Position::Rope) config.rope.theta = sizes.at("theta");
  if (const auto rope = sizes.find("rope"); rope != sizes.end()) {
    config.rope.factor = rope->at(0);
    config.rope.low = rope->at(1);
    config.rope.high = rope->at(2);
    config.rope.original = rope->at(3);
  }
  if (const auto e = sizes.find("experts"); e != sizes.end())
    config.experts = {.count = e->at("count"),
                      .chosen = e->at("chosen"),
                      .shared = e->at("shared"),
                      .router = e->at("router") == "softmax" ? Router::Softmax : Router::Sigmoid,
                      .renormalize = e->at("renormalize")};
  if (sizes_of(config) != sizes) throw UserError("a model of a kind that this program lacks");
  return config;
}

std::string Manifest::difference(const json& there, const json& here) {
  constexpr size_t kMost = 4;
  const auto shown_of = [](const json& sizes, const std::string& name) {
    return sizes.contains(name) ? shortened(shown(sizes.at(name))) : "none";
  };
  const json all_there = there.flatten(), all_here = here.flatten();
  json names = all_there;
  names.update(all_here);
  std::vector<std::string> differ;
  for (const auto& [name, ignored] : names.items()) {
    const std::string one = shown_of(all_there, name), other = shown_of(all_here, name);
    if (one != other && differ.size() < kMost)
      differ.push_back(fmt::format("{} is {} there and {} here",
                                   name.empty() ? "the model" : shortened(name.substr(1)), one,
                                   other));
  }
  return fmt::format("{}; legal are the flags of the model that was saved",
                     fmt::join(differ, ", "));
}

Manifest Manifest::read(const fs::path& generation) {
  const std::string path = (generation / kManifestFile).string();
  const std::string text = read_small_file(path, kMaxJsonFile);
  try {
    return from_text(text);
  } catch (const json::exception&) {
    throw UserError("{}: not a checkpoint of Ladder, or damaged", path);
  } catch (const UserError& e) {
    throw UserError("{}: not a checkpoint of Ladder: {}", path, e.what());
  }
}

std::optional<Manifest> Manifest::find(const fs::path& dir) { return with_checkpoint(dir, read); }

std::string Manifest::text() const {
  json sums;
  for (const auto& [name, sum] : files) sums[name] = {{"bytes", sum.bytes}, {"crc32c", sum.hex}};
  return sealed({{"format", kFormat}, {"model", model}, {"state", state}, {"files", sums}});
}

void Manifest::write(const fs::path& generation) const {
  write_file((generation / kManifestFile).string(), "checkpoint", text());
}

}  // namespace ladder
