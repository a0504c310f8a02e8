// Helpers that check shapes, for kernels/shapes.cpp, attention_shapes.cpp and expert_shapes.cpp.
#pragma once

#include <initializer_list>

#include "kernels/narrow.h"
#include "kernels/tensor.h"

namespace ladder {

/// An operand, and the dtype and shape that it must have.
struct Want {
  const char* name;
  const Tensor& tensor;
  Dtype dtype;
  Shape shape;
};

inline void check(const char* op, std::initializer_list<Want> wants) {
  for (const Want& want : wants) {
    CHECK(want.tensor, "{}: {} is null", op, want.name);
    CHECK(want.tensor.dtype == want.dtype, "{}: {} has the wrong dtype", op, want.name);
    CHECK(want.tensor.shape == want.shape, "{}: {} is {}, not {}", op, want.name,
          to_string(want.tensor.shape), to_string(want.shape));
  }
}

/// Activations may have this dtype. FP8 is refused: only factors of a matmul may be FP8.
inline void check_float(const char* op, const char* name, Dtype dtype) {
  const bool real = dtype == Dtype::F32 || dtype == Dtype::F64;
  CHECK(real || (is_narrow(dtype) && !is_fp8(dtype)), "{}: {} is no float", op, name);
}

/// The operand that determines the dtype and the extents of the others.
inline void check_first(const char* op, const char* name, const Tensor& tensor, int rank) {
  check_float(op, name, tensor.dtype);
  CHECK(tensor.shape.rank == rank, "{}: {} is {}, not of rank {}", op, name,
        to_string(tensor.shape), rank);
}

}  // namespace ladder
