#include "common/save/checkpoint.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <set>

#include "common/comm/failure.h"
#include "common/error.h"
#include "common/hf/config.h"
#include "common/hf/json.h"
#include "common/hf/safetensors.h"
#include "common/model/shards.h"
#include "common/output_file.h"
#include "kernels/transfer.h"

namespace ladder {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

bool is_finite(const json& value) {
  if (value.is_number_float()) return std::isfinite(value.get<double>());
  return !value.is_structured() || std::all_of(value.begin(), value.end(), is_finite);
}

/// The first state with a NaN or an infinity, which JSON cannot hold; empty: none.
std::string not_finite_in(const json& states) {
  for (const auto& [name, value] : states.items())
    if (!is_finite(value)) return "the state " + name;
  return "";
}

/// config.json and the files of the tokenizer, by name.
std::map<std::string, std::string> texts_of(const TrainingState& state) {
  json config = hf_config(state.gpt);
  for (const char* key : {"bos_token_id", "eos_token_id"})
    if (state.end_of_text && config[key].is_null()) config[key] = *state.end_of_text;
  std::map<std::string, std::string> texts = state.tokenizer;
  texts[kConfigFile] = config.dump(2) + "\n";
  return texts;
}

/// The manifest without the checksums of the files.
Manifest manifest_of(const TrainingState& state, int64_t steps) {
  Manifest manifest{.model = Manifest::sizes_of(state.gpt), .state = {{"step", steps}}};
  for (const NamedState& other : state.others) manifest.state[other.name] = other.get();
  return manifest;
}

void check_sum(const SafetensorsReader& file, const FileSum& expected) {
  const FileSum sum = file.sum(expected.kind);
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

/// The files of a checkpoint, checked. They can be read even after another program removes them.
struct OpenCheckpoint {
  fs::path dir;
  Manifest manifest;
  std::vector<SafetensorsReader> weights;
  SafetensorsReader optimizer;
};

/// @param dir has the files
OpenCheckpoint open_checkpoint(const fs::path& dir, const TrainingState& state) {
  Manifest manifest = Manifest::read(dir);
  check_model(dir, manifest, state.gpt);
  std::vector<SafetensorsReader> weights;
  for (const auto& [name, sum] : manifest.files) {
    if (name == kOptimizerFile) continue;
    weights.emplace_back((dir / name).string());
    check_sum(weights.back(), sum);
  }
  SafetensorsReader optimizer((dir / kOptimizerFile).string());
  check_sum(optimizer, manifest.files.at(kOptimizerFile));
  check_optimizer(optimizer, state);
  return {dir, std::move(manifest), std::move(weights), std::move(optimizer)};
}

/// Whether all ranks have found the same checkpoint. Another program may save while they look.
/// @param before on rank 0, what ranks have found when they looked last
/// @throws UserError on rank 0 if two looks in turn show the same differences
bool agree(const std::string& path, const std::optional<OpenCheckpoint>& found, Comm* comm,
           std::vector<std::string>& before) {
  if (!comm || comm->size() == 1) return true;
  // A group of its own, so that none of this counts as traffic of the run.
  const std::unique_ptr<Comm> group = comm->split(0, comm->rank());
  const std::vector<std::string> all = gather_text(*group, found ? found->manifest.text() : "");
  const auto other = std::ranges::find_if(all, [&](const auto& one) { return one != all[0]; });
  if (other != all.end() && all == before)
    throw UserError(
        "{}: rank {} does not find there what rank 0 does; legal is the same on every "
        "rank",
        path, other - all.begin());
  before = all;
  uint8_t same = other == all.end();
  group->broadcast({.ptr = &same, .dtype = Dtype::U8, .shape = {1}}, 0);
  return same != 0;
}

}  // namespace

CheckpointSave::CheckpointSave(SaveDirectory& dir, const TrainingState& state, int64_t steps,
                               SaveHow how)
    : files_(plan_files(state, how.file_bytes)), path_(dir.generation(steps).string()), how_(how) {
  if (state.comm && state.comm->rank() > 0) return;
  generation_.emplace(dir, steps);
  covers_ = covers_of(state, files_);
  manifest_ = manifest_of(state, steps);
  texts_ = texts_of(state);
  if (files_.size() > 2)
    texts_[kIndexFile] = weights_index(std::span(files_).first(files_.size() - 1));
}

void CheckpointSave::write(const Ctx& ctx, const TrainingState& state) {
  written_.attempt([&] {
    if (generation_) generation_->create();
  });
  const std::string error = std::move(written_.error);
  written_ = write_own_runs(ctx, state, files_, path_, how_.gather ? state.comm : nullptr);
  if (!error.empty()) written_.error = error;
  if (!generation_) return;
  written_.attempt([&] {
    for (const auto& [name, text] : texts_)
      write_file(generation_->file(name.c_str()), "checkpoint", text);
  });
}

void CheckpointSave::agree(Comm* comm) {
  json sums;
  for (const RunsSum& sum : written_.sums) sums.push_back({sum.crc, sum.cover});
  const json own = {{"sums", sums},
                    {"error", written_.error},
                    {"not_finite", {written_.bad_file, written_.bad_entry, written_.not_finite}}};
  // A path in the error may not be UTF-8.
  std::vector<std::string> votes{json_text(own)};
  if (comm) votes = gather_text(*comm, votes[0]);
  if (!generation_) return;

  std::vector<RunsSum> all(files_.size());
  std::vector<json> not_finite;
  for (size_t rank = votes.size(); rank-- > 0;) {
    const json vote = json::parse(votes[rank]);
    if (const std::string error = vote["error"]; !error.empty()) {
      written_.error = error;
      failed_rank_ = static_cast<int>(rank);
    }
    for (size_t file = 0; file < all.size(); ++file)
      all[file] += {vote["sums"][file][0], vote["sums"][file][1]};
    if (vote["not_finite"][2] != "") not_finite.push_back(vote["not_finite"]);
  }
  std::string bad = not_finite_in(manifest_.state);
  if (!not_finite.empty()) bad = std::ranges::min(not_finite)[2];
  if (!bad.empty()) why_not_ = bad + " holds a NaN or an infinity";
  for (size_t file = 0; file < all.size(); ++file) {
    const auto& [name, plan] = files_[file];
    manifest_.files[name] = sum_of_runs(all[file].crc, plan.bytes);
    if (written_.error.empty() && all[file].cover != covers_[file])
      written_.error = name + ": cannot be right: ranks have not written each byte once";
  }
}

void CheckpointSave::publish() {
  if (!generation_ || !why_not_.empty()) return;
  written_.attempt([&] {
    manifest_.write(generation_->path());
    generation_->publish();
  });
}

json CheckpointSave::report() const {
  const auto ms = [](int64_t ns) { return 1e-6 * static_cast<double>(ns); };
  return {{"write_ms", ms(written_.write_ns)},
          {"sync_ms", ms(written_.sync_ns)},
          {"busy_ms", ms(written_.busy_ns)},
          {"writes", written_.writes},
          {"bytes", written_.bytes}};
}

int64_t load_checkpoint(const Ctx& ctx, const std::string& path, const TrainingState& state) {
  const bool first = !state.comm || state.comm->rank() == 0;
  std::optional<OpenCheckpoint> found;
  std::vector<std::string> before;
  do {
    found = with_checkpoint(path, [&](const fs::path& dir) { return open_checkpoint(dir, state); });
  } while (!agree(path, found, state.comm, before));
  if (!found) {
    load_weights(ctx, path, state.gpt, state.layout, state.params, first);
    return 0;
  }
  const auto& [dir, manifest, weights, optimizer] = *found;
  const FoundWeights tensors = find_weights(weights, state.gpt);
  set_states(dir, manifest, state);

  if (first && is_unnamed(path, dir))
    tell(
        fmt::format("note: --load {}: no link names a checkpoint there; {} is the whole one with "
                    "the most steps",
                    path, dir.filename().string()));

  // Everything is checked now. From here on tensors are overwritten.
  copy_weights(ctx, state.params, tensors, state.gpt, state.layout);
  copy_optimizer(ctx, optimizer, state);
  if (first) tell_unshared(Manifest::path_in(dir).string(), manifest, state);
  return manifest.steps();
}

}  // namespace ladder
