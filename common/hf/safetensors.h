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
  int64_t bytes = 0;
  std::string hex;
  bool operator==(const FileSum&) const = default;
};
/// Of a file whose runs add this: see crc32c_of_range().
FileSum sum_of_runs(uint32_t runs, int64_t bytes);

/// A file as it is known before its first byte of data: so several ranks can write it.
struct SafetensorsPlan {
  struct Entry {
    std::string name;
    Dtype dtype;
    Shape shape;
  };
  /// @param of all tensors, in order; wider dtypes first, so that all are aligned
  explicit SafetensorsPlan(std::vector<Entry> of,
                           const std::map<std::string, std::string>& metadata = {});

  /// The place of a tensor in the file, in bytes. @throws CheckError if there is none
  int64_t begin_of(const std::string& name) const;
  /// The tensor that has byte `at` of the file.
  const Entry& entry_at(int64_t at) const;

  std::vector<Entry> entries;
  std::vector<int64_t> begins;  ///< where each entry begins in the file
  std::string head;             ///< the bytes before the data
  int64_t bytes;                ///< of the whole file
};

/// Writes a file, tensor after tensor. It appears in finish().
class SafetensorsWriter {
 public:
  /// @throws UserError if the disk refuses, as all functions here do
  SafetensorsWriter(const std::string& path, SafetensorsPlan plan);

  /// The next elements, in host memory.
  void append(Tensor run);
  /// All is appended: the file is on the disk when this returns.
  FileSum finish();
  /// The first tensor with a NaN or an infinity; empty: none.
  const std::string& not_finite() const { return not_finite_; }

 private:
  void write(std::span<const std::byte> bytes);

  OutputFile file_;
  SafetensorsPlan plan_;
  int64_t at_ = 0;
  uint32_t runs_ = 0;  ///< crc32c_of_range() of all that is written
  std::string not_finite_;
};

/// Whether a tensor has neither a NaN nor an infinity. Only floats of at least 16 bits are looked
/// at.
bool is_finite(Tensor tensor);

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
  /// @throws UserError as InputFile::read() does; so does sum()
  void read(const TensorEntry& entry, int64_t begin, std::span<std::byte> out) const;
  FileSum sum() const;

 private:
  InputFile file_;
  int64_t data_ = 0;  ///< where the data begins in the file
  TensorEntries entries_;
};

}  // namespace ladder
