// The header of a safetensors file: which tensors there are, and where.
//
//   {"wte.weight":{"dtype":"F32","shape":[256,64],"data_offsets":[0,65536]}, ...}
//
// Offsets count from the start of the data, which the tensors cover without gap or overlap.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/tensor.h"

namespace ladder {

/// A tensor in a file.
struct TensorEntry {
  std::string dtype;  ///< as the file has it: "F32", or one that nothing here can read
  std::vector<int64_t> shape;
  int64_t begin, end;  ///< bytes of the data

  int64_t bytes() const { return end - begin; }
};

/// By name.
using TensorEntries = std::map<std::string, TensorEntry>;

/// "F32"
std::string dtype_name(Dtype dtype);

/// What a header says, checked in full; it may be any bytes.
/// @param data_bytes in the file behind the header
/// @throws UserError that says what is wrong, for the caller to name the file
TensorEntries parse_header(std::string_view text, int64_t data_bytes);

}  // namespace ladder
