#include "common/run/checkpoint.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>
#include <set>

#include "common/error.h"
#include "common/run/manifest.h"
#include "common/run/safetensors.h"
#include "common/run/shards.h"
#include "kernels/transfer.h"

namespace ladder {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// A name that nothing has: not the current checkpoint, nor a leftover, nor a file of the user's.
std::string fresh_name(const fs::path& dir, std::string_view kind, int64_t step) {
  for (int i = 0;; ++i) {
    auto name = i == 0 ? fmt::format("{}-{}.safetensors", kind, step)
                       : fmt::format("{}-{}.{}.safetensors", kind, step, i);
    if (!fs::exists(dir / name)) return name;
  }
}

/// A flat tensor of the layout, of which ranks may have parts; others are one rank's alone.
bool is_flat(const ParamLayout& layout, const Tensor& tensor) {
  const bool cut =
      layout.shards() > 1 || layout.tensor_rank().size > 1 || layout.stage_rank().size > 1;
  return cut && tensor.shape.rank == 1;
}

/// Shape in the file.
Shape whole_shape(const ParamLayout& layout, const Tensor& tensor) {
  return is_flat(layout, tensor) ? Shape{whole_elements(layout, tensor)} : tensor.shape;
}

/// On rank 0 the file's sum.
FileSum write_optimizer(const Ctx& ctx, const std::string& path, const TrainingState& state,
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
      gather_sections(ctx, state.comm, state.layout, tensor,
                      [&](int64_t, Tensor section) { writer->append(section); });
    } else if (first) {
      writer->write(HostCopy::of(ctx, tensor).tensor());
    }
  }
  return writer ? writer->finish() : FileSum{};
}

// What the new manifest no longer names. A file that was lost may have given it its name. One that
// stays behind does no harm.
void remove_files(const fs::path& dir, const Manifest& previous, const Manifest& now) {
  for (const std::string& name : {previous.weights.name, previous.optimizer.name}) {
    std::error_code ignored;
    if (name != now.weights.name && name != now.optimizer.name) fs::remove(dir / name, ignored);
  }
}

void check_sum(const SafetensorsReader& file, const FileSum& expected) {
  const FileSum sum = file.sum();
  if (sum != expected)
    throw UserError("{}: damaged: {} bytes with checksum {}, not {} with {}", file.path(),
                    sum.bytes, sum.xxh3, expected.bytes, expected.xxh3);
}

void check_model(const fs::path& dir, const Manifest& manifest, const GptConfig& config) {
  const json sizes = Manifest::sizes_of(config);
  if (manifest.model != sizes)
    throw UserError("{}: a checkpoint of the model {}, not {}", dir.string(), manifest.model.dump(),
                    sizes.dump());
}

// The file holds exactly the tensors that this run's optimizer has.
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
      take_shard(ctx, state.layout, tensor, read);
      continue;
    }
    const HostCopy host = HostCopy::to_write(ctx, tensor);
    read(0, {static_cast<std::byte*>(host.tensor().ptr), static_cast<size_t>(tensor.bytes())});
    host.send();
  }
}

// A state that the checkpoint does not know stays as it is.
void set_states(const fs::path& dir, const Manifest& manifest, const TrainingState& state) {
  for (const NamedState& other : state.others) {
    if (!manifest.state.contains(other.name)) continue;
    try {
      other.set(manifest.state.at(other.name));
    } catch (const json::exception&) {
      throw UserError("{}: its state {} is malformed", Manifest::path_in(dir).string(), other.name);
    } catch (const UserError& e) {
      throw UserError("{}: its state {} is damaged: {}", Manifest::path_in(dir).string(),
                      other.name, e.what());
    }
  }
}

void create_directories(const std::string& dir) {
  std::error_code error;
  if (fs::create_directories(dir, error); error)
    throw UserError("--save {}: cannot be a directory: {}", dir, error.message());
}

/// Directories on the way to `dir`, itself included, that do not exist: they go again with the
/// object, if they are empty.
class Missing {
 public:
  explicit Missing(const std::string& dir) {
    std::error_code ignored;
    fs::path at = fs::absolute(dir, ignored);
    // A link that leads nowhere exists: it is not ours to remove.
    for (; at.has_relative_path() && !fs::exists(fs::symlink_status(at, ignored));
         at = at.parent_path())
      paths_.push_back(at);
  }
  Missing(const Missing&) = delete;
  Missing& operator=(const Missing&) = delete;
  ~Missing() {
    std::error_code ignored;
    for (const fs::path& path : paths_) fs::remove(path, ignored);
  }

 private:
  std::vector<fs::path> paths_;  // the innermost first
};

/// What rank 0 alone knows of a save. Unless write() is reached, its new files go again: on a full
/// disk they would only take room from the next try.
class Files {
 public:
  Manifest manifest;

  Files(const std::string& dir, const TrainingState& state, int64_t steps) : dir_(dir) {
    check_save_dir(dir);
    create_directories(dir);
    previous_ = Manifest::find(dir);
    manifest.model = Manifest::sizes_of(state.gpt);
    manifest.state["step"] = steps;
    for (const NamedState& other : state.others) manifest.state[other.name] = other.get();
    manifest.weights.name = fresh_name(dir, "model", steps);
    manifest.optimizer.name = fresh_name(dir, "optimizer", steps);
  }
  Files(const Files&) = delete;
  Files& operator=(const Files&) = delete;
  ~Files() {
    if (written_) return;
    std::error_code ignored;
    for (const std::string& name : {manifest.weights.name, manifest.optimizer.name})
      fs::remove(dir_ / name, ignored);
  }

  /// The new files become the checkpoint, and those of the previous one go.
  void write() {
    manifest.write(dir_);
    written_ = true;
    if (previous_) remove_files(dir_, *previous_, manifest);
  }

 private:
  fs::path dir_;
  std::optional<Manifest> previous_;
  bool written_ = false;
};

}  // namespace

void check_save_dir(const std::string& dir) {
  // Only creating it shows that it can be created. Directories and file are dropped again.
  const Missing missing(dir);
  create_directories(dir);
  Manifest::find(dir);
  const OutputFile probe(Manifest::path_in(dir).string(), "--save");
}

void save_checkpoint(const Ctx& ctx, const std::string& dir, const TrainingState& state,
                     int64_t steps) {
  const bool first = !state.comm || state.comm->rank() == 0;
  std::optional<Files> files;
  if (first) files.emplace(dir, state, steps);
  const auto path = [&](const Manifest::File Manifest::*file) {
    return first ? (fs::path(dir) / (files->manifest.*file).name).string() : "";
  };
  const FileSum weights = write_weights(ctx, state.comm, path(&Manifest::weights), state.gpt,
                                        state.layout, state.params);
  const FileSum optimizer = write_optimizer(ctx, path(&Manifest::optimizer), state, first);
  if (!first) return;
  files->manifest.weights.sum = weights;
  files->manifest.optimizer.sum = optimizer;
  files->write();
}

int64_t load_checkpoint(const Ctx& ctx, const std::string& path, const TrainingState& state) {
  const fs::path dir = path;
  const std::optional<Manifest> manifest = Manifest::find(dir);
  if (!manifest) {
    load_weights(ctx, path, state.gpt, state.layout, state.params,
                 !state.comm || state.comm->rank() == 0);
    return 0;
  }
  check_model(dir, *manifest, state.gpt);
  const SafetensorsReader weights((dir / manifest->weights.name).string());
  const SafetensorsReader optimizer((dir / manifest->optimizer.name).string());
  check_sum(weights, manifest->weights.sum);
  check_sum(optimizer, manifest->optimizer.sum);
  check_optimizer(optimizer, state);
  const FoundWeights found = find_weights({&weights, 1}, state.gpt);
  set_states(dir, *manifest, state);

  // All has been checked: from here on tensors are overwritten.
  copy_weights(ctx, state.params, found, state.gpt, state.layout);
  copy_optimizer(ctx, optimizer, state);
  return manifest->steps();
}

}  // namespace ladder
