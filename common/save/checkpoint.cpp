#include "common/save/checkpoint.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <optional>
#include <set>

#include "common/comm/failure.h"
#include "common/error.h"
#include "common/hf/config.h"
#include "common/hf/safetensors.h"
#include "common/model/shards.h"
#include "common/output_file.h"
#include "common/save/manifest.h"
#include "kernels/check.h"
#include "kernels/transfer.h"

namespace ladder {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

/// Whether ranks may have parts of the tensor. Other tensors are on every rank or belong to one.
bool is_flat(const ParamLayout& layout, const Tensor& tensor) {
  const bool cut =
      layout.shards() > 1 || layout.tensor_rank().size > 1 || layout.stage_rank().size > 1;
  return cut && tensor.shape.rank == 1;
}

/// The shape of the tensor in the file.
Shape whole_shape(const ParamLayout& layout, const Tensor& tensor) {
  return is_flat(layout, tensor) ? Shape{whole_elements(layout, layout.own(tensor))} : tensor.shape;
}

WrittenFile write_optimizer(const Ctx& ctx, const std::string& path, const TrainingState& state,
                            bool first) {
  std::vector<NamedTensor> wide_first = state.optim;
  std::stable_sort(wide_first.begin(), wide_first.end(), [](const auto& a, const auto& b) {
    return size_of(a.tensor.dtype) > size_of(b.tensor.dtype);
  });
  std::optional<SafetensorsWriter> writer;
  if (first) {
    std::vector<SafetensorsWriter::Entry> entries;
    for (const auto& [name, tensor] : wide_first)
      entries.push_back({name, tensor.dtype, whole_shape(state.layout, tensor)});
    writer.emplace(path, std::move(entries), std::map<std::string, std::string>{});
  }
  for (const auto& [name, tensor] : wide_first) {
    if (is_flat(state.layout, tensor)) {
      gather_sections(ctx, state.comm, state.layout, state.layout.own(tensor),
                      [&](int64_t, Tensor section) { writer->append(section); });
    } else if (first) {
      writer->write(HostCopy::of(ctx, tensor).tensor());
    }
  }
  return writer ? writer->finish() : WrittenFile{};
}

bool is_finite(const json& value) {
  if (value.is_number_float()) return std::isfinite(value.get<double>());
  return !value.is_structured() || std::all_of(value.begin(), value.end(), is_finite);
}

/// The first state with a NaN or an infinity, which JSON cannot hold; empty: none.
std::string not_finite(const json& states) {
  for (const auto& [name, value] : states.items())
    if (!is_finite(value)) return "the state " + name;
  return "";
}

/// The manifest without the checksums of the files.
Manifest manifest_of(const TrainingState& state, int64_t steps) {
  Manifest manifest{.model = Manifest::sizes_of(state.gpt), .state = {{"step", steps}}};
  for (const NamedState& other : state.others) manifest.state[other.name] = other.get();
  return manifest;
}

void check_sum(const SafetensorsReader& file, const FileSum& expected) {
  const FileSum sum = file.sum();
  if (sum != expected)
    throw UserError("{}: damaged: {} bytes with checksum {}, not {} with {}", file.path(),
                    sum.bytes, sum.xxh3, expected.bytes, expected.xxh3);
}

void check_model(const fs::path& dir, const Manifest& manifest, const GptConfig& config) {
  const json sizes = Manifest::sizes_of(config);
  if (manifest.model == sizes) return;
  throw UserError("{}: a checkpoint of another model: {}", dir.string(),
                  Manifest::difference(manifest.model, sizes).c_str());
}

// The file must hold exactly the tensors that this run's optimizer has.
void check_optimizer(const SafetensorsReader& file, const TrainingState& state) {
  std::set<std::string> here, there;
  for (const NamedTensor& part : state.optim) here.insert(part.name);
  for (const auto& [name, entry] : file.entries()) there.insert(name);
  if (here != there)
    throw UserError("{}: holds the optimizer state [{}]; this run's has [{}]", file.path(),
                    fmt::join(there, ", "), fmt::join(here, ", "));
  for (const auto& [name, tensor] : state.optim)
    file.expect(name, tensor.dtype, whole_shape(state.layout, tensor));
}

void copy_optimizer(const Ctx& ctx, const SafetensorsReader& file, const TrainingState& state) {
  for (const auto& [name, tensor] : state.optim) {
    const auto& entry = file.expect(name, tensor.dtype, whole_shape(state.layout, tensor));
    const auto read = [&](int64_t begin, std::span<std::byte> out) {
      file.read(entry, begin, out);
    };
    if (is_flat(state.layout, tensor)) {
      take_shard(ctx, state.layout, state.layout.own(tensor), read);
      continue;
    }
    const HostCopy host = HostCopy::to_write(ctx, tensor);
    read(0, {static_cast<std::byte*>(host.tensor().ptr), static_cast<size_t>(tensor.bytes())});
    host.send();
  }
}

/// Says which states only the program or only the checkpoint has. Every run has "step" and
/// "origin".
void tell_unshared(const std::string& path, const Manifest& manifest, const TrainingState& state) {
  std::set<std::string> fresh, aside;
  for (const auto& [name, value] : manifest.state.items())
    if (name != "step" && name != "origin") aside.insert(name);
  for (const NamedState& other : state.others)
    if (aside.erase(other.name) == 0) fresh.insert(other.name);
  if (!fresh.empty())
    tell(fmt::format("note: {} lacks states, which start fresh: {}", path, fmt::join(fresh, ", ")));
  if (!aside.empty())
    tell(fmt::format("note: {} has states of another chapter, which are left aside: {}", path,
                     fmt::join(aside, ", ")));
}

void set_states(const fs::path& dir, const Manifest& manifest, const TrainingState& state) {
  const std::string path = Manifest::path_in(dir).string();
  for (const NamedState& other : state.others) {
    if (!manifest.state.contains(other.name)) {
      if (other.needed) throw UserError("{}: holds no state {}", path, other.name);
      continue;
    }
    try {
      other.set(manifest.state.at(other.name));
    } catch (const json::exception&) {
      throw UserError("{}: its state {} is malformed", path, other.name);
    } catch (const UserError& e) {
      throw UserError("{}: its state {}: {}", path, other.name, e.what());
    }
  }
}

/// Loads from the directory that has the files of a checkpoint.
int64_t load_generation(const Ctx& ctx, const fs::path& dir, const TrainingState& state) {
  const Manifest manifest = Manifest::read(dir);
  check_model(dir, manifest, state.gpt);
  const SafetensorsReader weights((dir / kWeightsFile).string());
  const SafetensorsReader optimizer((dir / kOptimizerFile).string());
  check_sum(weights, manifest.weights);
  check_sum(optimizer, manifest.optimizer);
  check_optimizer(optimizer, state);
  const FoundWeights found = find_weights({&weights, 1}, state.gpt);
  set_states(dir, manifest, state);

  // Everything is checked now. From here on tensors are overwritten.
  copy_weights(ctx, state.params, found, state.gpt, state.layout);
  copy_optimizer(ctx, optimizer, state);
  if (!state.comm || state.comm->rank() == 0)
    tell_unshared(Manifest::path_in(dir).string(), manifest, state);
  return manifest.steps();
}

/// config.json and the files of the tokenizer.
void write_texts(const Generation& generation, const TrainingState& state) {
  json config = hf_config(state.gpt);
  for (const char* key : {"bos_token_id", "eos_token_id"})
    if (state.end_of_text && config[key].is_null()) config[key] = *state.end_of_text;
  write_file(generation.file(kConfigFile), "checkpoint", config.dump(2) + "\n");
  for (const auto& [name, text] : state.tokenizer)
    write_file(generation.file(name.c_str()), "checkpoint", text);
}

}  // namespace

std::string save_checkpoint(const Ctx& ctx, SaveDirectory* dir, const TrainingState& state,
                            int64_t steps) {
  const bool first = !state.comm || state.comm->rank() == 0;
  CHECK(first == (dir != nullptr), "rank 0 alone has the directory of --save");
  std::optional<Generation> generation;
  if (dir) {
    dir->remove_leftovers();
    generation.emplace(*dir, steps);
  }
  const auto path = [&](const char* name) { return dir ? generation->file(name) : ""; };
  const WrittenFile weights =
      write_weights(ctx, state.comm, path(kWeightsFile), state.gpt, state.layout, state.params);
  const WrittenFile optimizer = write_optimizer(ctx, path(kOptimizerFile), state, first);
  if (!dir) return "";

  Manifest manifest = manifest_of(state, steps);
  manifest.weights = weights.sum;
  manifest.optimizer = optimizer.sum;
  for (const std::string& bad :
       {weights.not_finite, optimizer.not_finite, not_finite(manifest.state)})
    if (!bad.empty()) return bad + " holds a NaN or an infinity";
  write_texts(*generation, state);
  manifest.write(generation->path());
  generation->publish();
  return "";
}

int64_t load_checkpoint(const Ctx& ctx, const std::string& path, const TrainingState& state) {
  const std::optional<int64_t> steps =
      with_checkpoint(path, [&](const fs::path& dir) { return load_generation(ctx, dir, state); });
  if (steps) return *steps;
  load_weights(ctx, path, state.gpt, state.layout, state.params,
               !state.comm || state.comm->rank() == 0);
  return 0;
}

}  // namespace ladder
