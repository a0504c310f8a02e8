#include "common/save/checkpoint.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <set>
#include <tuple>

#include "common/comm/failure.h"
#include "common/error.h"
#include "common/hf/safetensors.h"
#include "common/output_file.h"
#include "common/save/hf_config.h"
#include "common/save/hf_weights.h"
#include "common/save/shards.h"
#include "kernels/transfer.h"

namespace ladder {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

/// The shape that a tensor of the optimizer has in the file.
Shape whole_shape(const ParamLayout& layout, const Tensor& tensor) {
  return is_flat(layout, tensor) ? Shape{whole_elements(layout, layout.own(tensor))} : tensor.shape;
}

bool is_finite(const json& value) {
  if (value.is_number_float()) return std::isfinite(value.get<double>());
  return !value.is_structured() || std::all_of(value.begin(), value.end(), is_finite);
}

/// config.json and the further files, by name.
std::map<std::string, std::string> texts_of(const TrainingState& state) {
  json config = hf_config(state.layout.config());
  for (const char* key : {"bos_token_id", "eos_token_id"})
    if (state.end_of_text && config[key].is_null()) config[key] = *state.end_of_text;
  std::map<std::string, std::string> texts = state.texts;
  if (state.layout.config().adapter_rank == 0) texts[kConfigFile] = config.dump(2) + "\n";
  return texts;
}

/// The file of the weights.
const char* weights_file_of(const TrainingState& state) {
  return state.layout.config().adapter_rank > 0 ? kAdapterFile : kWeightsFile;
}

/// The manifest without the checksums of the files.
Manifest manifest_of(const TrainingState& state, int64_t steps) {
  Manifest manifest{.model = Manifest::sizes_of(state.layout.config()), .state = {{"step", steps}}};
  for (const NamedState& other : state.others) manifest.state[other.name] = other.get();
  return manifest;
}

void check_sum(const SafetensorsReader& file, const FileSum& expected) {
  const FileSum sum = file.sum();
  if (sum != expected)
    throw UserError("{}: damaged: {} bytes with checksum {}, not {} with {}", file.path(),
                    sum.bytes, sum.hex, expected.bytes, expected.hex);
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

/// Wide dtypes come first in a file, so that all are aligned.
std::vector<NamedTensor> wide_first(std::vector<NamedTensor> tensors) {
  std::ranges::stable_sort(tensors, std::greater<>(),
                           [](const NamedTensor& one) { return size_of(one.tensor.dtype); });
  return tensors;
}

/// Appends the optimizer's state on rank 0. All ranks call it.
void append_optimizer(const Ctx& ctx, const TrainingState& state, SafetensorsWriter* writer) {
  for (const auto& [name, tensor] : wide_first(state.optim))
    if (is_flat(state.layout, tensor))
      gather_sections(ctx, state.comm, state.layout, state.layout.own(tensor),
                      [&](int64_t, Tensor section) { writer->append(section); });
    else if (writer)
      writer->append(HostCopy::of(ctx, tensor).tensor());
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
  const std::string path = (dir / kManifestFile).string();
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

/// The files of a checkpoint, checked. They can be read even after another program removes them.
struct OpenCheckpoint {
  fs::path dir;
  Manifest manifest;
  SafetensorsReader weights, optimizer;
};

/// A file of the checkpoint, checked.
SafetensorsReader open_file(const fs::path& dir, const Manifest& manifest, const char* name) {
  if (!manifest.files.contains(name))
    throw UserError("{}: holds no file {}", (dir / kManifestFile).string(), name);
  SafetensorsReader file((dir / name).string());
  check_sum(file, manifest.files.at(name));
  return file;
}

/// @param dir has the files
OpenCheckpoint open_checkpoint(const fs::path& dir, const TrainingState& state) {
  Manifest manifest = Manifest::read(dir);
  check_model(dir, manifest, state.layout.config());
  SafetensorsReader weights = open_file(dir, manifest, weights_file_of(state));
  SafetensorsReader optimizer = open_file(dir, manifest, kOptimizerFile);
  check_optimizer(optimizer, state);
  return {dir, std::move(manifest), std::move(weights), std::move(optimizer)};
}

/// @throws UserError on rank 0 unless all ranks have found the same checkpoint
void check_same(const std::string& path, const std::optional<OpenCheckpoint>& found, Comm* comm) {
  if (!comm || comm->size() == 1) return;
  // A group of its own, so that none of this counts as traffic of the run.
  const std::unique_ptr<Comm> group = comm->split(0, comm->rank());
  const std::vector<std::string> all = gather_text(*group, found ? found->manifest.text() : "");
  for (size_t rank = 1; rank < all.size(); ++rank)
    if (all[rank] != all[0])
      throw UserError(
          "{}: rank {} does not find there what rank 0 does; legal is the same on every rank, to "
          "which nobody saves meanwhile",
          path, rank);
  group->barrier();
}

}  // namespace

bool is_flat(const ParamLayout& layout, const Tensor& tensor) {
  return ranks_of(layout) > 1 && tensor.shape.rank == 1;
}

SafetensorsPlan plan_optimizer(const TrainingState& state) {
  std::vector<SafetensorsPlan::Entry> entries;
  for (const auto& [name, tensor] : wide_first(state.optim))
    entries.push_back({name, tensor.dtype, whole_shape(state.layout, tensor)});
  return SafetensorsPlan(std::move(entries));
}

SmallStates::SmallStates(const TrainingState& state, int64_t steps)
    : weights_file_(weights_file_of(state)),
      manifest_(manifest_of(state, steps)),
      texts_(texts_of(state)) {}

std::string SmallStates::not_finite() const {
  for (const auto& [name, value] : manifest_.state.items())
    if (!is_finite(value)) return "the state " + name;
  return "";
}

void SmallStates::commit(Generation& generation, const FileSum& weights, const FileSum& optimizer) {
  for (const auto& [name, text] : texts_)
    write_file(generation.file(name.c_str()), "checkpoint", text);
  manifest_.files = {{weights_file_, weights}, {kOptimizerFile, optimizer}};
  manifest_.write(generation.path());  // the last file: what has it is whole
  generation.publish();
}

std::string save_checkpoint(const Ctx& ctx, SaveDirectory* dir, const TrainingState& state,
                            int64_t steps) {
  const bool first = !state.comm || state.comm->rank() == 0;
  CHECK(first == (dir != nullptr), "rank 0 alone has the directory of --save");
  std::optional<Generation> generation;
  std::optional<SafetensorsWriter> weights, optimizer;
  if (first) {
    generation.emplace(*dir, steps);
    weights.emplace(generation->file(weights_file_of(state)), plan_weights(state.layout));
    optimizer.emplace(generation->file(kOptimizerFile), plan_optimizer(state));
  }
  const ParamLayout whole = state.layout.whole();
  gather_sections(ctx, state.comm, state.layout, state.params,
                  [&](int64_t s, Tensor section) { append_weights(*weights, whole, s, section); });
  append_optimizer(ctx, state, first ? &*optimizer : nullptr);
  if (!first) return "";
  SmallStates small(state, steps);
  for (const std::string& bad :
       {weights->not_finite(), optimizer->not_finite(), small.not_finite()})
    if (!bad.empty()) return bad + " holds a NaN or an infinity";
  const FileSum sums[] = {weights->finish(), optimizer->finish()};
  small.commit(*generation, sums[0], sums[1]);
  return "";
}

void load_parameters(const Ctx& ctx, const std::string& path, const TrainingState& state) {
  const auto found = with_checkpoint(path, [&](const fs::path& dir) {
    Manifest manifest = Manifest::read(dir);
    check_model(dir, manifest, state.layout.config());
    SafetensorsReader weights = open_file(dir, manifest, weights_file_of(state));
    return std::tuple(dir, std::move(manifest), std::move(weights));
  });
  if (!found) return load_weights(ctx, path, state.layout, state.params);
  const auto& [dir, manifest, weights] = *found;
  const FoundWeights tensors = find_weights({&weights, 1}, state.layout.config());
  set_states(dir, manifest, state);
  copy_weights(ctx, state.params, tensors, state.layout);
}

int64_t load_checkpoint(const Ctx& ctx, const std::string& path, const TrainingState& state) {
  const bool first = !state.comm || state.comm->rank() == 0;
  const std::optional<OpenCheckpoint> found =
      with_checkpoint(path, [&](const fs::path& dir) { return open_checkpoint(dir, state); });
  check_same(path, found, state.comm);
  if (!found) {
    load_weights(ctx, path, state.layout, state.params, first);
    return 0;
  }
  const auto& [dir, manifest, weights, optimizer] = *found;
  const FoundWeights tensors = find_weights({&weights, 1}, state.layout.config());
  set_states(dir, manifest, state);

  if (first && is_unnamed(path, dir))
    tell(
        fmt::format("note: --load {}: no link names a checkpoint there; {} is the whole one with "
                    "the most steps",
                    path, dir.filename().string()));

  // Everything is checked now. From here on tensors are overwritten.
  copy_weights(ctx, state.params, tensors, state.layout);
  copy_optimizer(ctx, optimizer, state);
  if (first) tell_unshared((dir / kManifestFile).string(), manifest, state);
  return manifest.steps();
}

}  // namespace ladder
