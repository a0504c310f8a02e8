// Products of a warpgroup, computed on the CPU. kernels/cuda/native/wgmma.h says what they do, how
// the lanes of a warp share a sum, and how a square lies in shared memory.
#pragma once

#include "kernels/cuda/on_cpu/warpgroup.h"
#include "ptx.h"

namespace ladder::LADDER_CUDA {

inline uint32_t describe(const void* first) { return on_cpu::factor_at(first); }

inline void fence_shared_for_tensor_cores() {}
inline void begin_products() {}
inline void commit_products() { on_cpu::close_product_group(); }

template <int kPending, int N>
void wait_for_products(float (&)[N][4], Where where = Where::current()) {
  on_cpu::finish_products(kPending, where);
}

inline void start_product_of_rows(float (&d)[8][4], uint32_t a, uint32_t b, bool add,
                                  Where where = Where::current()) {
  on_cpu::start_product({.d = d, .a = a, .b = b, .add = add}, where);
}

inline void start_product(float (&d)[8][4], const uint32_t (&a)[4], uint32_t b,
                          Where where = Where::current()) {
  on_cpu::start_product({.d = d, .left = {a[0], a[1], a[2], a[3]}, .b = b, .from_registers = true},
                        where);
}

}  // namespace ladder::LADDER_CUDA
