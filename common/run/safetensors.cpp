#include "common/run/safetensors.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <fcntl.h>
#include <limits>
#include <unistd.h>

#include <nlohmann/json.hpp>
#include <sys/mman.h>
#include <sys/stat.h>

#include "common/error.h"

namespace ladder {
namespace {

using nlohmann::json;

constexpr int64_t kLengthBytes = 8;
constexpr int64_t kDataAlign = 64;           // of the data's start in the file
constexpr int64_t kMaxHeader = 100'000'000;  // the format's own limit

static_assert(std::endian::native == std::endian::little, "files are written as memory lies");

struct NamedSize {
  std::string_view name;
  int64_t bytes;
};
// Foreign files may hold buffers of types that we only skip.
constexpr std::array kDtypes = {NamedSize{"F64", 8},  NamedSize{"F32", 4}, NamedSize{"F16", 2},
                                NamedSize{"BF16", 2}, NamedSize{"I64", 8}, NamedSize{"I32", 4},
                                NamedSize{"I16", 2},  NamedSize{"I8", 1},  NamedSize{"U8", 1},
                                NamedSize{"BOOL", 1}};

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

// Bytes of a tensor, or -1 if that is no tensor.
int64_t tensor_bytes(std::string_view dtype, const std::vector<int64_t>& shape) {
  const auto* known = std::find_if(kDtypes.begin(), kDtypes.end(),
                                   [&](const NamedSize& d) { return d.name == dtype; });
  if (known == kDtypes.end()) return -1;
  int64_t bytes = known->bytes;
  for (int64_t extent : shape)
    if (extent < 0 || __builtin_mul_overflow(bytes, extent, &bytes)) return -1;
  return bytes;
}

std::vector<int64_t> extents(const Shape& shape) {
  return {shape.dims.begin(), shape.dims.begin() + shape.rank};
}

std::string header_text(std::span<const SafetensorsWriter::Entry> entries,
                        const std::map<std::string, std::string>& metadata) {
  json header = {{"__metadata__", metadata}};
  int64_t begin = 0;
  for (const auto& [name, dtype, shape] : entries) {
    CHECK(begin % size_of(dtype) == 0, "{} comes before wider types", name);
    CHECK(!header.contains(name), "two tensors called {}", name);
    const int64_t end = begin + shape.size() * size_of(dtype);
    header[name] = {
        {"dtype", dtype_name(dtype)}, {"shape", extents(shape)}, {"data_offsets", {begin, end}}};
    begin = end;
  }
  std::string text = header.dump();
  const auto length = round_up(std::ssize(text) + kLengthBytes, kDataAlign) - kLengthBytes;
  text.resize(static_cast<size_t>(length), ' ');
  return text;
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

SafetensorsWriter::SafetensorsWriter(const std::string& path, std::vector<Entry> entries,
                                     const std::map<std::string, std::string>& metadata)
    : file_(path, "checkpoint"), entries_(std::move(entries)) {
  const std::string header = header_text(entries_, metadata);
  const uint64_t length = header.size();
  write_bytes(std::as_bytes(std::span(&length, 1)));
  write_bytes(bytes_of(header));
}

void SafetensorsWriter::write(Tensor tensor) {
  CHECK(next_ < entries_.size(), "more than {} tensors", entries_.size());
  const Entry& entry = entries_[next_];
  CHECK(tensor.shape == entry.shape, "{} is {}, not {}", entry.name, to_string(tensor.shape),
        to_string(entry.shape));
  append(tensor);
}

void SafetensorsWriter::append(Tensor part) {
  CHECK(next_ < entries_.size(), "more than {} tensors", entries_.size());
  const Entry& entry = entries_[next_];
  appended_ += part.size();
  CHECK(part.dtype == entry.dtype && appended_ <= entry.shape.size(), "{} elements of {} {}",
        appended_, entry.name, to_string(entry.shape));
  write_bytes({static_cast<const std::byte*>(part.ptr), static_cast<size_t>(part.bytes())});
  if (appended_ < entry.shape.size()) return;
  appended_ = 0;
  ++next_;
}

void SafetensorsWriter::write_bytes(std::span<const std::byte> bytes) {
  file_.write({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  checksum_.update(bytes);
  bytes_ += std::ssize(bytes);
}

FileSum SafetensorsWriter::finish() {
  CHECK(next_ == entries_.size(), "{} of {} tensors written", next_, entries_.size());
  file_.commit();
  return {.bytes = bytes_, .xxh3 = checksum_.hex()};
}

SafetensorsReader::SafetensorsReader(const std::string& path) : path_(path) {
  map();
  try {
    parse();
  } catch (...) {
    unmap();
    throw;
  }
}

SafetensorsReader::~SafetensorsReader() { unmap(); }

void SafetensorsReader::map() {
  // Of a pipe, too, without waiting for who writes.
  const int fd = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  struct stat info {};
  const bool readable = fd >= 0 && ::fstat(fd, &info) == 0 && S_ISREG(info.st_mode);
  const auto size = static_cast<size_t>(info.st_size);
  void* memory = nullptr;
  if (readable && size > 0) memory = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd, 0);
  if (fd >= 0) ::close(fd);
  if (!readable || memory == MAP_FAILED)
    throw UserError("{}: no such file, or it cannot be read", path_);
  file_ = {static_cast<const std::byte*>(memory), memory ? size : 0};
}

void SafetensorsReader::unmap() {
  if (!file_.empty()) ::munmap(const_cast<std::byte*>(file_.data()), file_.size());
}

void SafetensorsReader::parse() {
  const int64_t size = std::ssize(file_);
  if (size < kLengthBytes) throw UserError("{}: truncated: {} bytes", path_, size);
  uint64_t length = 0;
  std::memcpy(&length, file_.data(), sizeof length);
  if (length > kMaxHeader || static_cast<int64_t>(length) > size - kLengthBytes)
    throw UserError("{}: not a safetensors file, or truncated: its header would have {} bytes",
                    path_, length);
  const auto* text = reinterpret_cast<const char*>(file_.data()) + kLengthBytes;
  const auto data = file_.subspan(kLengthBytes + length);
  try {
    const json header = json::parse(text, text + length);
    for (const auto& [name, value] : header.items())
      if (name != "__metadata__") add_entry(name, value, data);
  } catch (const json::exception&) {
    throw UserError("{}: not a safetensors file: its header is malformed", path_);
  }
  check_coverage(data);
}

void SafetensorsReader::add_entry(const std::string& name, const json& value,
                                  std::span<const std::byte> data) {
  Entry entry{.dtype = value.at("dtype").get<std::string>(),
              .shape = value.at("shape").get<std::vector<int64_t>>(),
              .bytes = {}};
  const auto [begin, end] = value.at("data_offsets").get<std::array<int64_t, 2>>();
  if (begin < 0 || end < begin || end > std::ssize(data))
    throw UserError("{}: truncated or malformed: {} would be bytes {} to {} of {}", path_, name,
                    begin, end, data.size());
  if (tensor_bytes(entry.dtype, entry.shape) != end - begin)
    throw UserError("{}: malformed: {} is {} {} in {} bytes", path_, name, entry.dtype,
                    json(entry.shape).dump(), end - begin);
  entry.bytes = data.subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin));
  entries_.emplace(name, entry);
}

// Tensors cover the data without gap or overlap.
void SafetensorsReader::check_coverage(std::span<const std::byte> data) const {
  std::vector<std::span<const std::byte>> parts;
  for (const auto& [name, entry] : entries_)
    if (!entry.bytes.empty()) parts.push_back(entry.bytes);
  std::sort(parts.begin(), parts.end(), [](auto a, auto b) { return a.data() < b.data(); });
  const std::byte* at = data.data();
  for (const auto& part : parts) {
    if (part.data() != at) throw UserError("{}: malformed: tensors overlap or leave a gap", path_);
    at += part.size();
  }
  if (at != data.data() + data.size())
    throw UserError("{}: malformed: bytes behind the last tensor", path_);
}

std::span<const std::byte> SafetensorsReader::expect(const std::string& name, Dtype dtype,
                                                     const Shape& shape) const {
  const auto at = entries_.find(name);
  if (at == entries_.end()) throw UserError("{}: holds no tensor {}", path_, name);
  const Entry& entry = at->second;
  if (entry.dtype != dtype_name(dtype) || entry.shape != extents(shape))
    throw UserError("{}: {} is {} {}, not {} {} as here", path_, name, entry.dtype,
                    json(entry.shape).dump(), dtype_name(dtype), json(extents(shape)).dump());
  return entry.bytes;
}

FileSum SafetensorsReader::sum() const {
  Checksum checksum;
  checksum.update(file_);
  return {.bytes = std::ssize(file_), .xxh3 = checksum.hex()};
}

}  // namespace ladder
