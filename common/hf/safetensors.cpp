#include "common/hf/safetensors.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>

#include "common/error.h"
#include "common/json.h"

namespace ladder {
namespace {

using nlohmann::json;

constexpr int64_t kLengthBytes = 8;
constexpr int64_t kDataAlign = 64;           // of the data's start in the file
constexpr int64_t kMaxHeader = 100'000'000;  // the format's own limit

static_assert(std::endian::native == std::endian::little, "files are written as memory lies");

/// Whether a word has all bits of the exponent set: a NaN or an infinity.
template <class Word>
bool any_has(std::span<const std::byte> words, Word exponent) {
  bool any = false;
  for (size_t i = 0; i < words.size(); i += sizeof(Word)) {
    Word word;
    std::memcpy(&word, words.data() + i, sizeof word);
    any |= (word & exponent) == exponent;
  }
  return any;
}

std::vector<int64_t> extents(const Shape& shape) {
  return {shape.dims.begin(), shape.dims.begin() + shape.rank};
}

struct NamedSize {
  std::string_view name;
  int64_t bytes;
};
// Foreign files may have tensors of types that are only skipped. A type that is not in this list
// may be a newer one. Then only the file knows its size.
constexpr std::array kDtypes = {
    NamedSize{"F64", 8}, NamedSize{"F32", 4},  NamedSize{"F16", 2},     NamedSize{"BF16", 2},
    NamedSize{"I64", 8}, NamedSize{"I32", 4},  NamedSize{"I16", 2},     NamedSize{"I8", 1},
    NamedSize{"U64", 8}, NamedSize{"U32", 4},  NamedSize{"U16", 2},     NamedSize{"U8", 1},
    NamedSize{"C64", 8}, NamedSize{"BOOL", 1}, NamedSize{"F8_E4M3", 1}, NamedSize{"F8_E5M2", 1}};

/// Whether a tensor of this type and shape can have so many bytes.
bool may_have(const TensorEntry& entry) {
  const auto* known = std::find_if(kDtypes.begin(), kDtypes.end(),
                                   [&](const NamedSize& d) { return d.name == entry.dtype; });
  if (known == kDtypes.end()) return true;
  int64_t bytes = known->bytes;
  for (int64_t extent : entry.shape)
    if (__builtin_mul_overflow(bytes, extent, &bytes)) return false;
  return bytes == entry.bytes();
}

/// An extent or an offset.
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

/// Parses a header, which may be any bytes, and checks all of it.
/// @param data_bytes how many bytes follow the header in the file
/// @throws UserError that says what is wrong; the caller names the file
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

}  // namespace

FileSum sum_of_runs(uint32_t runs, int64_t bytes) {
  return {.bytes = bytes, .hex = fmt::format("{:08x}", crc32c_of_file(runs, bytes))};
}

SafetensorsPlan::SafetensorsPlan(std::vector<Entry> of,
                                 const std::map<std::string, std::string>& metadata)
    : entries(std::move(of)) {
  json header = {{"__metadata__", metadata}};
  int64_t end = 0;
  for (const auto& [name, dtype, shape] : entries) {
    CHECK(end % size_of(dtype) == 0, "{} comes before wider types", name);
    CHECK(!header.contains(name), "two tensors called {}", name);
    begins.push_back(end);
    end += shape.size() * size_of(dtype);
    header[name] = {{"dtype", dtype_text(dtype)},
                    {"shape", extents(shape)},
                    {"data_offsets", {begins.back(), end}}};
  }
  const std::string text = header.dump();
  const int64_t data = round_up(std::ssize(text) + kLengthBytes, kDataAlign);
  const auto length = static_cast<uint64_t>(data - kLengthBytes);
  head.resize(static_cast<size_t>(data), ' ');
  std::memcpy(head.data(), &length, kLengthBytes);
  std::memcpy(head.data() + kLengthBytes, text.data(), text.size());
  for (int64_t& begin : begins) begin += data;
  bytes = data + end;
}

int64_t SafetensorsPlan::begin_of(const std::string& name) const {
  const auto entry = std::ranges::find(entries, name, &Entry::name);
  CHECK(entry != entries.end(), "no tensor {}", name);
  return begins[static_cast<size_t>(entry - entries.begin())];
}

const SafetensorsPlan::Entry& SafetensorsPlan::entry_at(int64_t at) const {
  const auto next = std::ranges::upper_bound(begins, at);
  CHECK(next != begins.begin(), "byte {} is of the header", at);
  return entries[static_cast<size_t>(next - begins.begin() - 1)];
}

SafetensorsWriter::SafetensorsWriter(const std::string& path, SafetensorsPlan plan)
    : file_(path, "checkpoint"), plan_(std::move(plan)) {
  write(std::as_bytes(std::span(plan_.head)));
}

void SafetensorsWriter::append(Tensor run) {
  if (not_finite_.empty() && !is_finite(run)) not_finite_ = plan_.entry_at(at_).name;
  write({static_cast<const std::byte*>(run.ptr), static_cast<size_t>(run.bytes())});
}

void SafetensorsWriter::write(std::span<const std::byte> bytes) {
  const int64_t behind = plan_.bytes - at_ - std::ssize(bytes);
  CHECK(behind >= 0, "{} bytes at {} of {}", bytes.size(), at_, plan_.bytes);
  file_.write({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  runs_ ^= crc32c_of_range(bytes, behind);
  at_ += std::ssize(bytes);
}

FileSum SafetensorsWriter::finish() {
  CHECK(at_ == plan_.bytes, "{} of {} bytes", at_, plan_.bytes);
  file_.commit();
  return sum_of_runs(runs_, at_);
}

// Narrower floats are never weights or states.
bool is_finite(Tensor tensor) {
  const std::span bytes(static_cast<const std::byte*>(tensor.ptr),
                        static_cast<size_t>(tensor.bytes()));
  switch (tensor.dtype) {
    case Dtype::F64: return !any_has<uint64_t>(bytes, 0x7ff0'0000'0000'0000);
    case Dtype::F32: return !any_has<uint32_t>(bytes, 0x7f80'0000);
    case Dtype::BF16: return !any_has<uint16_t>(bytes, 0x7f80);
    case Dtype::F16: return !any_has<uint16_t>(bytes, 0x7c00);
    default: return true;
  }
}

SafetensorsReader::SafetensorsReader(const std::string& path) : file_(path) {
  const int64_t size = file_.size();
  if (size < kLengthBytes) throw UserError("{}: truncated: {} bytes", path, size);
  uint64_t length = 0;
  file_.read(0, std::as_writable_bytes(std::span(&length, 1)));
  if (length > kMaxHeader || static_cast<int64_t>(length) > size - kLengthBytes)
    throw UserError("{}: not a safetensors file, or truncated: its header would have {} bytes",
                    path, length);
  std::string header(length, '\0');
  file_.read(kLengthBytes, std::as_writable_bytes(std::span(header)));
  data_ = kLengthBytes + static_cast<int64_t>(length);
  try {
    entries_ = parse_header(header, size - data_);
  } catch (const UserError& e) {
    throw UserError("{}: not a safetensors file, or damaged: {}", path, e.what());
  }
}

const TensorEntry& SafetensorsReader::expect(const std::string& name, Dtype dtype,
                                             const Shape& shape) const {
  const auto at = entries_.find(name);
  if (at == entries_.end()) throw UserError("{}: holds no tensor {}", path(), name);
  const TensorEntry& entry = at->second;
  if (entry.dtype != dtype_text(dtype) || entry.shape != extents(shape))
    throw UserError("{}: {} is {} {}, not {} {} as here", path(), name, entry.dtype,
                    shown(entry.shape), dtype_text(dtype), shown(extents(shape)));
  return entry;
}

void SafetensorsReader::read(const TensorEntry& entry, int64_t begin,
                             std::span<std::byte> out) const {
  CHECK(begin >= 0 && std::ssize(out) <= entry.bytes() - begin, "bytes {} to {} of {}", begin,
        begin + std::ssize(out), entry.bytes());
  file_.read(data_ + entry.begin + begin, out);
}

FileSum SafetensorsReader::sum() const {
  uint32_t crc = 0;
  std::vector<std::byte> buffer(size_t{1} << 20);
  for (int64_t at = 0; at < file_.size(); at += std::ssize(buffer)) {
    const auto part = std::span(buffer).first(
        static_cast<size_t>(std::min(std::ssize(buffer), file_.size() - at)));
    file_.read(at, part);
    crc ^= crc32c_of_range(part, file_.size() - at - std::ssize(part));
  }
  return sum_of_runs(crc, file_.size());
}

}  // namespace ladder
