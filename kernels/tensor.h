// Tensor: a view. It points at memory that an Arena owns, and knows its shape.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <type_traits>

#include "kernels/check.h"

namespace ladder {

/// The formats narrower than F32 are described in kernels/narrow.h.
enum class Dtype : uint8_t { F32, F64, I32, I64, U8, BF16, F16, E4M3, E5M2 };
/// Where a tensor lies. Shared means: in host memory that a device reads and writes, too.
enum class Place : uint8_t { Host, Device, Shared };

constexpr int64_t kMaxDims = 4;

/// Tensors and shards start at multiples of this many elements of the flat buffer. So a shard has
/// whole leaves of a squared norm (kNormLeaf) and whole blocks of 8-bit states (kQuantBlock).
constexpr int64_t kAlign = 64;

/// Bytes of one element.
constexpr int64_t size_of(Dtype dtype) {
  switch (dtype) {
    case Dtype::F32:
    case Dtype::I32: return 4;
    case Dtype::F64:
    case Dtype::I64: return 8;
    case Dtype::BF16:
    case Dtype::F16: return 2;
    case Dtype::U8:
    case Dtype::E4M3:
    case Dtype::E5M2: return 1;
  }
  return 0;
}

/// "BF16", "F8_E4M3": the names in messages and in safetensors files.
constexpr std::string_view dtype_text(Dtype dtype) {
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
  return "?";
}

/// The Dtype of a C++ type: dtype_of<float> == Dtype::F32.
template <class T>
constexpr Dtype dtype_of = [] {
  if constexpr (std::is_same_v<T, float>) return Dtype::F32;
  if constexpr (std::is_same_v<T, double>) return Dtype::F64;
  if constexpr (std::is_same_v<T, int32_t>) return Dtype::I32;
  if constexpr (std::is_same_v<T, int64_t>) return Dtype::I64;
  if constexpr (std::is_same_v<T, uint8_t>) return Dtype::U8;
}();

/// A scale is from 1 / kMaxFp8Scale to kMaxFp8Scale. So the product of two scales is far from
/// overflow, and this range is enough for any gradient.
constexpr float kMaxFp8Scale = 0x1p60f;

/// What belongs to an FP8 tensor: element = code / scale. The scale is a power of two, so it
/// changes no digit.
struct Fp8Scale {
  float scale = 1;
  float amax = 0;  ///< the largest magnitude that was quantized with this scale
};

/// Up to four extents, slowest first.
struct Shape {
  std::array<int64_t, kMaxDims> dims{};
  int rank = 0;

  Shape() = default;
  Shape(std::initializer_list<int64_t> extents) {
    CHECK(extents.size() <= kMaxDims, "{} dimensions", extents.size());
    for (int64_t extent : extents) dims[rank++] = extent;
  }
  /// Only the first `rank` of `dims` count. (GCC 12.2 may put a wrong number into the others where
  /// they and two equal extents are constants: it stores one of these four times.)
  bool operator==(const Shape& other) const {
    return std::equal(dims.begin(), dims.begin() + rank, other.dims.begin(),
                      other.dims.begin() + other.rank);
  }

  int64_t size() const {
    int64_t n = 1;
    for (int i = 0; i < rank; ++i) n *= dims[i];
    return n;
  }
};

/// "(4, 64, 128)"
inline std::string to_string(const Shape& shape) {
  std::string text = "(";
  for (int i = 0; i < shape.rank; ++i) text += fmt::format("{}{}", i ? ", " : "", shape.dims[i]);
  return text + ")";
}

/// Owns nothing, is trivially copyable and contiguous; the last dimension is the fastest. A default
/// Tensor is null: an operand that is left out, or an activation that was dropped.
struct Tensor {
  void* ptr = nullptr;
  Dtype dtype = Dtype::F32;
  Place place = Place::Host;
  Shape shape;
  Fp8Scale* fp8 = nullptr;  ///< E4M3 and E5M2 only
  /// The same FP8 codes, transposed: (dim(-1),rows()). Null unless Kernels::transposes_fp8 is set.
  void* transposed = nullptr;

  explicit operator bool() const { return ptr != nullptr; }
  int64_t size() const { return shape.size(); }
  int64_t bytes() const { return size() * size_of(dtype); }

  /// Extent of dimension i. A negative i counts from the last: dim(-1).
  int64_t dim(int i) const {
    const int at = i < 0 ? shape.rank + i : i;
    CHECK(at >= 0 && at < shape.rank, "dim({}) of {}", i, to_string(shape));
    return shape.dims[at];
  }

  /// Product of all extents but the last: the rows of the tensor seen as a matrix.
  int64_t rows() const {
    CHECK(shape.rank > 0, "no rows: a tensor of rank 0");
    Shape all_but_last = shape;
    --all_but_last.rank;
    return all_but_last.size();
  }

  /// Pointer to the first element, for use on the host.
  void* host() const {
    CHECK(place != Place::Device, "tensor {} of a device read by the host", to_string(shape));
    return ptr;
  }
  /// The same pointer, typed; null if the tensor is null.
  template <class T>
  T* data() const {
    CHECK(!ptr || dtype == dtype_of<T>, "tensor {} read as another dtype", to_string(shape));
    return static_cast<T*>(host());
  }

  /// Elements [begin, begin + count) of the first dimension. They have no transpose.
  Tensor slice(int64_t begin, int64_t count) const {
    CHECK(begin >= 0 && count >= 0 && begin + count <= dim(0), "slice [{}, {}) of {}", begin,
          begin + count, to_string(shape));
    Tensor part = *this;
    part.shape.dims[0] = count;
    part.transposed = nullptr;
    const int64_t stride = dim(0) == 0 ? 0 : bytes() / dim(0);
    if (ptr) part.ptr = static_cast<char*>(ptr) + begin * stride;
    return part;
  }

  /// The first `count` of the first dimension: a smaller batch in the same buffers, which is
  /// written there before it is read.
  Tensor first(int64_t count) const {
    Tensor part = slice(0, count);
    part.transposed = transposed;
    return part;
  }

  /// The same elements under another shape.
  Tensor view(Shape other) const {
    CHECK(other.size() == size(), "{} viewed as {}", to_string(shape), to_string(other));
    Tensor same = *this;
    same.shape = other;
    return same;
  }
};
static_assert(std::is_trivially_copyable_v<Tensor>);

}  // namespace ladder
