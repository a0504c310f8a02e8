#include "common/run/checkpoint.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <set>

#include "common/error.h"
#include "common/run/manifest.h"
#include "common/run/safetensors.h"
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

FileSum write_optimizer(const Ctx& ctx, const std::string& path,
                        std::span<const NamedTensor> optim) {
  std::vector<NamedTensor> wide_first(optim.begin(), optim.end());
  std::stable_sort(wide_first.begin(), wide_first.end(), [](const auto& a, const auto& b) {
    return size_of(a.tensor.dtype) > size_of(b.tensor.dtype);
  });
  std::vector<SafetensorsWriter::Entry> entries;
  for (const auto& [name, tensor] : wide_first)
    entries.push_back({name, tensor.dtype, tensor.shape});
  SafetensorsWriter writer(path, std::move(entries), {});
  for (const NamedTensor& part : wide_first) writer.write(HostCopy::of(ctx, part.tensor).tensor());
  return writer.finish();
}

// The new manifest no longer names them. One that stays behind does no harm.
void remove_files(const fs::path& dir, const Manifest& previous) {
  std::error_code ignored;
  fs::remove(dir / previous.weights.name, ignored);
  fs::remove(dir / previous.optimizer.name, ignored);
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
void check_optimizer(const SafetensorsReader& file, std::span<const NamedTensor> optim) {
  std::set<std::string> here, there;
  for (const NamedTensor& part : optim) here.insert(part.name);
  for (const auto& [name, entry] : file.entries()) there.insert(name);
  if (here != there)
    throw UserError("{}: holds the optimizer state [{}]; this run's has [{}]", file.path(),
                    fmt::join(there, ", "), fmt::join(here, ", "));
  for (const auto& [name, tensor] : optim) file.expect(name, tensor.dtype, tensor.shape);
}

}  // namespace

void check_save_dir(const std::string& dir) {
  std::error_code ignored;
  fs::path there = fs::absolute(dir, ignored);
  while (there.has_relative_path() && !fs::exists(there, ignored)) there = there.parent_path();
  if (!fs::is_directory(there, ignored)) throw UserError("--save {}: cannot be a directory", dir);
  Manifest::find(dir);
  // Opened and dropped: leaves nothing.
  const OutputFile probe(Manifest::path_in(there).string(), "--save");
}

void save_checkpoint(const Ctx& ctx, const std::string& dir, const GptConfig& config,
                     const ParamLayout& layout, Tensor params, std::span<const NamedTensor> optim,
                     const json& state) {
  check_save_dir(dir);
  std::error_code error;
  if (fs::create_directories(dir, error); error)
    throw UserError("--save {}: cannot be created: {}", dir, error.message());
  const auto step = state.at("step").get<int64_t>();
  const auto path = [&](const std::string& name) { return (fs::path(dir) / name).string(); };
  const std::optional<Manifest> previous = Manifest::find(dir);

  Manifest manifest{.model = Manifest::sizes_of(config), .state = state};
  manifest.weights.name = fresh_name(dir, "model", step);
  manifest.weights.sum = write_weights(ctx, path(manifest.weights.name), config, layout, params);
  manifest.optimizer.name = fresh_name(dir, "optimizer", step);
  manifest.optimizer.sum = write_optimizer(ctx, path(manifest.optimizer.name), optim);
  manifest.write(dir);
  if (previous) remove_files(dir, *previous);
}

json load_checkpoint(const Ctx& ctx, const std::string& path, const GptConfig& config,
                     const ParamLayout& layout, Tensor params, std::span<const NamedTensor> optim) {
  const fs::path dir = path;
  const std::optional<Manifest> manifest = Manifest::find(dir);
  if (!manifest) {
    load_weights(ctx, path, config, layout, params);
    return {{"step", 0}};
  }
  check_model(dir, *manifest, config);
  const SafetensorsReader weights((dir / manifest->weights.name).string());
  const SafetensorsReader optimizer((dir / manifest->optimizer.name).string());
  check_sum(weights, manifest->weights.sum);
  check_sum(optimizer, manifest->optimizer.sum);
  check_optimizer(optimizer, optim);
  const FoundWeights found = find_weights(weights, layout);

  // Nothing can fail from here on.
  copy_weights(ctx, params, found, config, layout);
  for (const auto& [name, tensor] : optim) {
    const auto bytes = optimizer.expect(name, tensor.dtype, tensor.shape);
    const HostCopy host = HostCopy::to_write(ctx, tensor);
    std::memcpy(host.tensor().ptr, bytes.data(), bytes.size());
    host.send();
  }
  return manifest->state;
}

}  // namespace ladder
