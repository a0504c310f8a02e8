#include "common/run/weights.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>
#include <optional>
#include <set>

#include "common/error.h"
#include "common/run/hf_layout.h"
#include "common/run/shards.h"
#include "kernels/transfer.h"

namespace ladder {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "transformer.";
const std::string kHead = "lm_head.weight";
const std::string kEmbedding = "transformer.wte.weight";

// "h.0.ln_1.weight": how some files name "transformer.h.0.ln_1.weight".
std::string without_prefix(const std::string& name) {
  return name.starts_with(kPrefix) ? name.substr(kPrefix.size()) : name;
}

// Further tensors mean a larger model; only the causal mask of older files may be there.
void refuse_other_weights(const SafetensorsReader& file, const ParamLayout& layout) {
  std::set<std::string> known;
  for (const ParamSpec& spec : layout.specs()) {
    known.insert(spec.name);
    known.insert(without_prefix(spec.name));
  }
  for (const auto& [name, entry] : file.entries()) {
    const bool mask = name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias");
    if (!mask && !known.contains(name))
      throw UserError("{}: holds {}, which this model has not; see --model and --layers",
                      file.path(), name);
  }
}

// A file, or the one that Hugging Face has in a directory.
std::string weights_path(const fs::path& path) {
  std::error_code ignored;
  if (!fs::is_directory(path, ignored)) return path.string();
  const fs::path inside = path / "model.safetensors";
  if (!fs::exists(inside, ignored))
    throw UserError("{}: holds neither checkpoint.json nor model.safetensors", path.string());
  return inside.string();
}

}  // namespace

FileSum write_weights(const Ctx& ctx, Comm* comm, const std::string& path, const GptConfig& config,
                      const ParamLayout& layout, Tensor params) {
  const ParamLayout whole(config);
  std::optional<SafetensorsWriter> writer;
  if (!comm || comm->rank() == 0) {
    std::vector<SafetensorsWriter::Entry> entries;
    for (const ParamSpec& spec : whole.specs())
      entries.push_back({spec.name, Dtype::F32, hf_shape(spec)});
    // "format" is what Hugging Face's loader looks for.
    writer.emplace(path, std::move(entries), std::map<std::string, std::string>{{"format", "pt"}});
  }
  auto spec = whole.specs().begin();
  std::vector<float> buffer;
  gather_sections(ctx, comm, layout, params, [&](int64_t s, Tensor section) {
    const Range range = whole.section(s);
    for (; spec != whole.specs().end() && spec->offset < range.end; ++spec) {
      buffer.resize(static_cast<size_t>(spec->live()));
      const Tensor hf{.ptr = buffer.data(), .shape = hf_shape(*spec)};
      to_hf(hf, section.slice(spec->offset - range.begin, spec->shape.size()), *spec, config.heads);
      writer->write(hf);
    }
  });
  return writer ? writer->finish() : FileSum{};
}

FoundWeights find_weights(const SafetensorsReader& file, const GptConfig& config) {
  const ParamLayout layout(config);
  refuse_other_weights(file, layout);
  const auto name_in_file = [&](const std::string& name) {
    const bool tied = name == kHead && !file.has(kHead);  // the head is the embedding
    const std::string& source = tied ? kEmbedding : name;
    return file.has(source) ? source : without_prefix(source);
  };
  FoundWeights found;
  for (const ParamSpec& spec : layout.specs())
    found[spec.name] = file.expect(name_in_file(spec.name), Dtype::F32, hf_shape(spec));
  return found;
}

void copy_weights(const Ctx& ctx, Tensor params, const FoundWeights& found, const GptConfig& config,
                  const ParamLayout& layout) {
  const HostCopy host = HostCopy::to_write(ctx, params);
  std::memset(host.tensor().ptr, 0, static_cast<size_t>(params.bytes()));
  std::vector<float> theirs, ours;  // a file's tensors need not be aligned
  const ParamLayout all(config);
  for (const ParamSpec& spec : layout.specs()) {
    const ParamSpec& whole = all.spec(spec.name);
    const std::span<const std::byte> bytes = found.at(spec.name);
    theirs.resize(bytes.size() / sizeof(float));
    std::memcpy(theirs.data(), bytes.data(), bytes.size());
    ours.resize(static_cast<size_t>(whole.shape.size()));
    from_hf({.ptr = ours.data(), .shape = whole.shape},
            {.ptr = theirs.data(), .shape = hf_shape(whole)}, whole, config.heads);
    auto* out = layout.tensor(host.tensor(), spec).data<float>();
    spec.for_runs([&](int64_t here, int64_t there, int64_t n) {
      std::copy_n(ours.data() + there, n, out + here);
    });
  }
  host.send();
}

void load_weights(const Ctx& ctx, const std::string& path, const GptConfig& config,
                  const ParamLayout& layout, Tensor params) {
  const SafetensorsReader file(weights_path(path));
  copy_weights(ctx, params, find_weights(file, config), config, layout);
}

}  // namespace ladder
