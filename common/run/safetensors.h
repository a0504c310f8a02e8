// Safetensors files: named tensors behind a JSON header (github.com/huggingface/safetensors).
//
//   | u64 length of the header, little-endian | header | data |
//
// The header maps each name to {"dtype","shape","data_offsets":[begin,end]}; offsets count from
// the start of the data, which the tensors cover without gap or overlap.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "common/run/checksum.h"
#include "common/run/output_file.h"
#include "kernels/tensor.h"

namespace ladder {

/// "F32"
std::string dtype_name(Dtype dtype);

/// Size and checksum of a whole file.
struct FileSum {
  int64_t bytes;
  std::string xxh3;
  bool operator==(const FileSum&) const = default;
};

/// Writes the tensors one after the other, so that only one needs to be in memory in its layout on
/// disk. The file appears in finish().
class SafetensorsWriter {
 public:
  struct Entry {
    std::string name;
    Dtype dtype;
    Shape shape;
  };
  /// @param entries all that will be written, in order, wider dtypes first (then all are aligned)
  /// @throws UserError if no file can be created there
  SafetensorsWriter(const std::string& path, std::vector<Entry> entries,
                    const std::map<std::string, std::string>& metadata);

  /// The next entry's elements.
  void write(Tensor tensor);
  /// The next elements of an entry that comes in parts, flat.
  void append(Tensor part);
  FileSum finish();

 private:
  void write_bytes(std::span<const std::byte> bytes);

  OutputFile file_;
  std::vector<Entry> entries_;
  size_t next_ = 0;
  int64_t appended_ = 0;  ///< elements of the next entry
  int64_t bytes_ = 0;
  Checksum checksum_;
};

/// A file mapped into memory, its header checked in full by the constructor.
class SafetensorsReader {
 public:
  struct Entry {
    std::string dtype;
    std::vector<int64_t> shape;
    std::span<const std::byte> bytes;
  };
  /// @throws UserError naming the file if it is missing, truncated or malformed
  explicit SafetensorsReader(const std::string& path);
  SafetensorsReader(const SafetensorsReader&) = delete;
  SafetensorsReader& operator=(const SafetensorsReader&) = delete;
  ~SafetensorsReader();

  const std::string& path() const { return path_; }
  const std::map<std::string, Entry>& entries() const { return entries_; }
  bool has(const std::string& name) const { return entries_.contains(name); }

  /// The tensor's bytes. @throws UserError if it is missing or of another dtype or shape
  std::span<const std::byte> expect(const std::string& name, Dtype dtype, const Shape& shape) const;
  FileSum sum() const;

 private:
  void map();
  void unmap();
  void parse();
  void add_entry(const std::string& name, const nlohmann::json& value,
                 std::span<const std::byte> data);
  void check_coverage(std::span<const std::byte> data) const;

  std::string path_;
  std::span<const std::byte> file_;
  std::map<std::string, Entry> entries_;
};

}  // namespace ladder
