// Safetensors files: named tensors behind a JSON header (github.com/huggingface/safetensors).
//
//   | u64 length of the header, little-endian | header | data |
//   {"wte.weight":{"dtype":"F32","shape":[256,64],"data_offsets":[0,65536]}, ...}
//
// Offsets count from the start of the data. Tensors cover the data without gap or overlap.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "common/checksum.h"
#include "common/input_file.h"
#include "common/output_file.h"
#include "kernels/tensor.h"

namespace ladder {

/// A tensor in a file.
struct TensorEntry {
  std::string dtype;  ///< as in the file: "F32", or one that Ladder cannot read
  std::vector<int64_t> shape;
  int64_t begin, end;  ///< which bytes of the data

  int64_t bytes() const { return end - begin; }
};

/// Entries by name.
using TensorEntries = std::map<std::string, TensorEntry>;

/// The size and the checksum of a whole file.
struct FileSum {
  int64_t bytes;
  std::string xxh3;
  bool operator==(const FileSum&) const = default;
};

/// What a writer reports of its file.
struct WrittenFile {
  FileSum sum{};
  std::string not_finite;  ///< the first tensor with a NaN or an infinity; empty: none
};

/// Writes tensors one after the other, so that only one at a time is in memory in the layout of the
/// file. The file appears in finish().
class SafetensorsWriter {
 public:
  struct Entry {
    std::string name;
    Dtype dtype;
    Shape shape;
  };
  /// @param entries everything that will be written, in order; wider dtypes first, so that all are
  /// aligned
  /// @throws UserError if no file can be created there
  SafetensorsWriter(const std::string& path, std::vector<Entry> entries,
                    const std::map<std::string, std::string>& metadata);

  /// Writes the elements of the next entry.
  void write(Tensor tensor);
  /// Writes the next elements of an entry that comes in parts. The part is flat.
  void append(Tensor part);
  WrittenFile finish();

 private:
  void write_bytes(std::span<const std::byte> bytes);

  OutputFile file_;
  std::vector<Entry> entries_;
  size_t next_ = 0;
  int64_t appended_ = 0;  ///< elements of the next entry so far
  int64_t bytes_ = 0;
  Checksum checksum_;
  std::string not_finite_;
};

/// An open file. The constructor checks its whole header. Tensors are read when they are asked for.
class SafetensorsReader {
 public:
  /// @throws UserError that names the file if it is missing, truncated or malformed
  explicit SafetensorsReader(const std::string& path);

  const std::string& path() const { return file_.path(); }
  const TensorEntries& entries() const { return entries_; }

  /// The tensor of this name. @throws UserError if it is missing, or has another dtype or shape
  const TensorEntry& expect(const std::string& name, Dtype dtype, const Shape& shape) const;
  /// out = bytes [begin, begin + out.size()) of the tensor.
  /// @throws UserError as InputFile::read() does; so do the two below
  void read(const TensorEntry& entry, int64_t begin, std::span<std::byte> out) const;
  /// All bytes of the tensor.
  std::vector<std::byte> bytes(const TensorEntry& entry) const;
  FileSum sum() const;

 private:
  InputFile file_;
  int64_t data_ = 0;  ///< where the data begins in the file
  TensorEntries entries_;
};

}  // namespace ladder
