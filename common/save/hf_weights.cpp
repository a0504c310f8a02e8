#include "common/save/hf_weights.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <set>
#include <vector>

#include "common/comm/failure.h"
#include "common/error.h"
#include "common/hf/file_names.h"
#include "common/json.h"
#include "common/save/hf_config.h"
#include "common/save/hf_layout.h"
#include "kernels/narrow.h"
#include "kernels/transfer.h"

namespace ladder {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

const std::string kHead = "lm_head.weight";

// Some files name "transformer.h.0.ln_1.weight" as "h.0.ln_1.weight".
std::string_view prefix_of(const GptConfig& config) {
  return has_llama_names(config) ? "model." : "transformer.";
}

/// All tensors of some files, for finding those of a model.
class Names {
 public:
  Names(std::span<const SafetensorsReader> files, std::string_view prefix) : prefix_(prefix) {
    for (const SafetensorsReader& file : files)
      for (const auto& [name, entry] : file.entries()) {
        all_.emplace(name, FoundWeight{.file = &file, .entry = &entry});
        has_prefix_ = has_prefix_ || name.starts_with(prefix);
      }
    path_ = files.size() == 1 ? files[0].path() : fs::path(files[0].path()).parent_path().string();
  }

  bool has(const std::string& name) const { return all_.contains(name); }
  /// The path of the file, or of the directory with several.
  const std::string& path() const { return path_; }

  FoundWeight take(const std::string& ours, const Shape& shape) {
    const bool cut = !has_prefix_ && ours.starts_with(prefix_);
    const std::string theirs = cut ? ours.substr(prefix_.size()) : ours;
    const auto at = all_.find(theirs);
    if (at == all_.end()) throw UserError("{}: holds no tensor {}", path_, theirs);
    check(at->first, *at->second.entry, shape);
    taken_.insert(theirs);
    return at->second;
  }

  /// Refuses further tensors, because they mean another model. Older files may have two extras: the
  /// causal mask, and the frequencies of RoPE.
  void refuse_others() const {
    for (const auto& [name, found] : all_) {
      constexpr std::array kNoWeights = {".attn.bias", ".attn.masked_bias", ".rotary_emb.inv_freq"};
      const bool known = std::any_of(kNoWeights.begin(), kNoWeights.end(),
                                     [&](const char* end) { return name.ends_with(end); });
      if (!known && !taken_.contains(name))
        throw UserError("{}: holds {}, which this model has not; see --model and --layers",
                        found.file->path(), name);
    }
  }

 private:
  void check(const std::string& name, const TensorEntry& entry, const Shape& shape) const {
    constexpr std::array kLegal = {"F32", "F16", "BF16"};
    if (std::find(kLegal.begin(), kLegal.end(), entry.dtype) == kLegal.end())
      throw UserError("{}: {} is {}; legal are {}", path_, name, entry.dtype,
                      fmt::join(kLegal, ", "));
    const std::vector<int64_t> here(shape.dims.begin(), shape.dims.begin() + shape.rank);
    if (entry.shape != here)
      throw UserError("{}: {} is {}, not {} as here; see --model, --channels and --seq-len", path_,
                      name, shown(entry.shape), shown(here));
  }

  std::string path_;
  std::map<std::string, FoundWeight> all_;
  std::set<std::string> taken_;
  std::string_view prefix_;
  bool has_prefix_ = false;  // whether names have the prefix
};

/// out = elements from `begin` on, as FP32.
void read_floats(const FoundWeight& weight, int64_t begin, std::span<float> out) {
  const auto& [file, entry] = weight;
  if (entry->dtype == "F32") return file->read(*entry, begin * 4, std::as_writable_bytes(out));
  const Format& format = entry->dtype == "F16" ? kF16 : kBf16;
  std::vector<uint16_t> codes(out.size());
  file->read(*entry, begin * 2, std::as_writable_bytes(std::span(codes)));
  std::transform(codes.begin(), codes.end(), out.begin(),
                 [&](uint16_t code) { return widen(format, code); });
}

/// Whether two weights of the same shape are equal in FP32, bit for bit.
bool equal(const FoundWeight& a, const FoundWeight& b, int64_t elements) {
  constexpr int64_t kPart = 1 << 18;
  std::vector<float> some(kPart), others(kPart);
  for (int64_t begin = 0; begin < elements; begin += kPart) {
    const auto n = static_cast<size_t>(std::min(kPart, elements - begin));
    read_floats(a, begin, std::span(some).first(n));
    read_floats(b, begin, std::span(others).first(n));
    if (std::memcmp(some.data(), others.data(), n * sizeof(float)) != 0) return false;
  }
  return true;
}

/// Memory for the tensors in which a file stores a parameter, one after the other.
std::vector<Tensor> hf_views(const ParamSpec& spec, const GptConfig& config,
                             std::vector<float>& memory) {
  const std::vector<HfTensor> theirs = hf_tensors(spec, config);
  int64_t elements = 0;
  for (const HfTensor& tensor : theirs) elements += tensor.shape.size();
  memory.resize(static_cast<size_t>(elements));
  std::vector<Tensor> views;
  float* at = memory.data();
  for (const HfTensor& tensor : theirs) {
    views.push_back({.ptr = at, .shape = tensor.shape});
    at += tensor.shape.size();
  }
  return views;
}

/// What config.json says about the head.
Head check_config(const std::string& path, const GptConfig& config) {
  if (path.empty()) return Head::Unknown;
  const nlohmann::json theirs = read_json(path);
  try {
    return check_hf_config(theirs, config) ? Head::Tied : Head::Own;
  } catch (const UserError& e) {
    throw UserError("{}: {}", path, e.what());
  }
}

// ---- files as save_pretrained() writes them: weights in one file, or in several that an index
// lists, and config.json beside them ----

/// The open files of one model.
struct HfFiles {
  std::vector<SafetensorsReader> weights;  ///< at least one; no tensor is in two of them
  std::string config;                      ///< path of config.json; empty if there is none
};

bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

/// What to open at a path: a file of weights, or an index.
fs::path resolved_weights(const fs::path& path) {
  std::error_code ignored;
  if (!fs::is_directory(path, ignored)) return path;
  for (const char* name : {kWeightsFile, kIndexFile})
    if (is_there(path / name)) return path / name;
  throw UserError("{}: holds neither a checkpoint nor {} nor {}", path.string(), kWeightsFile,
                  kIndexFile);
}

/// The files that an index names. No tensor is in two of them.
std::vector<SafetensorsReader> open_indexed(const std::string& path) {
  const json index = read_json(path);
  if (!index.is_object() || !index.contains("weight_map") || !index.at("weight_map").is_object() ||
      index.at("weight_map").empty())
    throw UserError("{}: not the index of a model: no weight_map of names and files", path);
  std::set<std::string> files, tensors;
  for (const auto& [name, file] : index.at("weight_map").items()) {
    const std::string place = file.is_string() ? file.get<std::string>() : "";
    if (place.empty() || place.find_first_of(std::string_view("/\0", 2)) != std::string::npos)
      throw UserError("{}: places {} in {}; legal are files beside it", path, name, shown(file));
    files.insert(place);
  }
  std::vector<SafetensorsReader> readers;
  for (const std::string& file : files) {
    readers.emplace_back((fs::path(path).parent_path() / file).string());
    for (const auto& [name, entry] : readers.back().entries())
      if (!tensors.insert(name).second)
        throw UserError("{}: holds {}, as does another file of {}", readers.back().path(), name,
                        path);
  }
  return readers;
}

/// @param path a directory with `model.safetensors` or `model.safetensors.index.json`, such an
///             index, or a file of weights
/// @throws UserError that names the file which is missing or damaged, or has a tensor that another
/// has
HfFiles open_hf_files(const std::string& path) {
  const fs::path weights = resolved_weights(path);
  HfFiles files;
  if (weights.extension() == ".json") {
    files.weights = open_indexed(weights.string());
  } else {
    files.weights.emplace_back(weights.string());
  }
  const fs::path config = weights.parent_path() / kConfigFile;
  if (is_there(config)) files.config = config.string();
  return files;
}

}  // namespace

SafetensorsPlan plan_weights(const ParamLayout& layout) {
  std::vector<SafetensorsPlan::Entry> entries;
  const ParamLayout whole = layout.whole();
  for (const ParamSpec& spec : whole.specs())
    for (const HfTensor& hf : hf_tensors(spec, layout.config()))
      entries.push_back({hf.name, Dtype::F32, hf.shape});
  return SafetensorsPlan(std::move(entries), {{"format", "pt"}});  // their loader looks for it
}

void append_weights(SafetensorsWriter& writer, const ParamLayout& whole, int64_t s,
                    Tensor section) {
  std::vector<float> memory;
  for (const ParamSpec& spec : whole.specs(s)) {
    const std::vector<Tensor> hf = hf_views(spec, whole.config(), memory);
    to_hf(hf, section.slice(spec.offset - whole.section(s).begin, spec.shape.size()), spec,
          whole.config());
    for (const Tensor& tensor : hf) writer.append(tensor);
  }
}

FoundWeights find_weights(std::span<const SafetensorsReader> files, const GptConfig& config,
                          Head head) {
  const ParamLayout layout(config);
  Names names(files, prefix_of(config));
  FoundWeights found;
  for (const ParamSpec& spec : layout.specs())
    for (const HfTensor& hf : hf_tensors(spec, config))
      if (hf.name != kHead) found[hf.name] = names.take(hf.name, hf.shape);
  if (config.adapter_rank > 0) {
    names.refuse_others();
    return found;
  }
  const ParamSpec& first = layout.specs().front();
  CHECK(first.role == Role::Embedding, "{}", first.name);
  const Shape shape = hf_tensors(first, config).front().shape;
  const FoundWeight& embedding = found.at(first.name);
  const bool own = head == Head::Own || names.has(kHead);
  const FoundWeight theirs = own ? names.take(kHead, shape) : embedding;
  names.refuse_others();
  const bool tied = head == Head::Tied || config.tied_head;
  const bool same = !own || !tied || equal(theirs, embedding, shape.size());
  // Versions of transformers disagree about which of the two would be the head.
  if (!same && head == Head::Tied)
    throw UserError(
        "{}: {} is not the embedding, but tie_word_embeddings of config.json is true, "
        "or left out; say false there, or leave {} out",
        names.path(), kHead, kHead);
  if (!same)
    throw UserError("{}: {} is not the embedding; legal is a run without --tied-head", names.path(),
                    kHead);
  if (!config.tied_head) found[kHead] = theirs;
  return found;
}

void copy_weights(const Ctx& ctx, const Flat& params, const FoundWeights& found,
                  const ParamLayout& layout) {
  const GptConfig& config = layout.config();
  const HostCopy host = HostCopy::to_write(ctx, params.tensor);
  std::memset(host.tensor().ptr, 0, static_cast<size_t>(params.tensor.bytes()));
  std::vector<float> theirs, ours;
  const ParamLayout all(config);
  for (const ParamSpec& spec : layout.specs()) {
    const ParamSpec& whole = all.spec(spec.name);
    const std::vector<HfTensor> names = hf_tensors(whole, config);
    const std::vector<Tensor> hf = hf_views(whole, config, theirs);
    for (size_t i = 0; i < hf.size(); ++i)
      read_floats(found.at(names[i].name), 0,
                  {hf[i].data<float>(), static_cast<size_t>(hf[i].size())});
    ours.resize(static_cast<size_t>(whole.shape.size()));
    from_hf({.ptr = ours.data(), .shape = whole.shape}, hf, whole, config);
    auto* out = layout.tensor(params.copied_to(host.tensor()), spec).data<float>();
    spec.for_runs([&](int64_t here, int64_t there, int64_t n) {
      std::copy_n(ours.data() + there, n, out + here);
    });
  }
  host.send();
}

void load_weights(const Ctx& ctx, const std::string& path, const ParamLayout& layout,
                  const Flat& params, bool speaks) {
  const GptConfig& config = layout.config();
  if (family(config) == Family::Mixture)
    throw UserError(
        "{}: a mixture of the parts of several models is no model of transformers; legal is a "
        "checkpoint of Ladder",
        path);
  if (config.adapter_rank > 0) {
    const SafetensorsReader file((fs::path(path) / kAdapterFile).string());
    return copy_weights(ctx, params, find_weights({&file, 1}, config), layout);
  }
  const HfFiles files = open_hf_files(path);
  const Head head = check_config(files.config, config);
  const FoundWeights found = find_weights(files.weights, config, head);
  if (speaks && head == Head::Unknown)
    tell(
        fmt::format("{}: no config.json beside the weights: --heads, the activation and the "
                    "epsilon of the norms{} are taken on trust",
                    path, has_llama_names(config) ? ", and the angles of RoPE" : ""));
  copy_weights(ctx, params, found, layout);
}

}  // namespace ladder
