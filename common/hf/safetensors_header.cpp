#include "common/hf/safetensors_header.h"

#include <algorithm>
#include <array>
#include <limits>

#include "common/error.h"
#include "common/hf/json.h"

namespace ladder {
namespace {

using nlohmann::json;

struct NamedSize {
  std::string_view name;
  int64_t bytes;
};
// Foreign files may hold buffers of types that are only skipped. A type that is not here may be one
// that came later: its size is the file's to know.
constexpr std::array kDtypes = {
    NamedSize{"F64", 8}, NamedSize{"F32", 4},  NamedSize{"F16", 2},     NamedSize{"BF16", 2},
    NamedSize{"I64", 8}, NamedSize{"I32", 4},  NamedSize{"I16", 2},     NamedSize{"I8", 1},
    NamedSize{"U64", 8}, NamedSize{"U32", 4},  NamedSize{"U16", 2},     NamedSize{"U8", 1},
    NamedSize{"C64", 8}, NamedSize{"BOOL", 1}, NamedSize{"F8_E4M3", 1}, NamedSize{"F8_E5M2", 1}};

/// Whether a tensor can have so many bytes.
bool may_have(const TensorEntry& entry) {
  const auto* known = std::find_if(kDtypes.begin(), kDtypes.end(),
                                   [&](const NamedSize& d) { return d.name == entry.dtype; });
  if (known == kDtypes.end()) return true;
  int64_t bytes = known->bytes;
  for (int64_t extent : entry.shape)
    if (__builtin_mul_overflow(bytes, extent, &bytes)) return false;
  return bytes == entry.bytes();
}

/// An extent or offset.
int64_t count(const json& value) {
  constexpr uint64_t kMost = std::numeric_limits<int64_t>::max();
  if (!value.is_number_unsigned() || value.get<uint64_t>() > kMost)
    throw UserError("malformed: {} is no size", shown(value));
  return value.get<int64_t>();
}

TensorEntry entry_of(const std::string& name, const json& value, int64_t data_bytes) {
  TensorEntry entry{
      .dtype = value.at("dtype").get<std::string>(), .shape = {}, .begin = 0, .end = 0};
  const json& shape = value.at("shape");
  const json& offsets = value.at("data_offsets");
  if (!shape.is_array() || !offsets.is_array() || offsets.size() != 2)
    throw UserError("malformed: {} has shape {} and offsets {}", name, shown(shape),
                    shown(offsets));
  for (const json& extent : shape) entry.shape.push_back(count(extent));
  entry.begin = count(offsets[0]);
  entry.end = count(offsets[1]);
  if (entry.end < entry.begin || entry.end > data_bytes)
    throw UserError("truncated or malformed: {} would be bytes {} to {} of {}", name, entry.begin,
                    entry.end, data_bytes);
  if (!may_have(entry))
    throw UserError("malformed: {} is {} {} in {} bytes", name, entry.dtype, shown(shape),
                    entry.bytes());
  return entry;
}

void check_coverage(const TensorEntries& entries, int64_t data_bytes) {
  std::vector<const TensorEntry*> parts;
  for (const auto& [name, entry] : entries)
    if (entry.bytes() > 0) parts.push_back(&entry);
  std::sort(parts.begin(), parts.end(), [](auto* a, auto* b) { return a->begin < b->begin; });
  int64_t at = 0;
  for (const TensorEntry* part : parts) {
    if (part->begin != at) throw UserError("malformed: tensors overlap or leave a gap");
    at = part->end;
  }
  if (at != data_bytes) throw UserError("malformed: bytes behind the last tensor");
}

}  // namespace

std::string dtype_name(Dtype dtype) {
  switch (dtype) {
    case Dtype::F32: return "F32";
    case Dtype::F64: return "F64";
    case Dtype::I32: return "I32";
    case Dtype::I64: return "I64";
    case Dtype::U8: return "U8";
    case Dtype::BF16: return "BF16";
    case Dtype::F16: return "F16";
    case Dtype::E4M3: return "F8_E4M3";
    case Dtype::E5M2: return "F8_E5M2";
  }
  return "";
}

TensorEntries parse_header(std::string_view text, int64_t data_bytes) {
  TensorEntries entries;
  try {
    const json header = parse_json(text);
    if (!header.is_object()) throw UserError("malformed: its header is no JSON object");
    for (const auto& [name, value] : header.items())
      if (name != "__metadata__") entries.emplace(name, entry_of(name, value, data_bytes));
  } catch (const json::exception&) {
    throw UserError("malformed: a tensor lacks its dtype, shape or offsets");
  }
  check_coverage(entries, data_bytes);
  return entries;
}

}  // namespace ladder
