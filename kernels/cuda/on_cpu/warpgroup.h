// Products of four warps that take factors from shared memory (wgmma). They run beside the threads
// that have started them: a random draw decides whether a product is computed at once, or when its
// warp waits for it.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "kernels/cuda/on_cpu/block.h"

namespace ladder::on_cpu {

/// D (64,64) += A (64,16) B (16,64) in BF16, as one lane starts it.
struct Product {
  float (*d)[4];                      ///< of the lane: 8 columns x 4
  std::array<uint32_t, 4> left = {};  ///< of the lane: A, if it lies in registers
  uint32_t a = 0, b = 0;              ///< where factors begin: see factor_at()
  bool add = true, from_registers = false;
  int group = 0;
};

/// Products of a thread that are not computed yet, in their order.
struct Products {
  std::vector<Product> started;
  int open_group = 0;
};
Products& products_of(int thread);

/// Where a factor in dynamic shared memory begins, in units of 16 bytes.
uint32_t factor_at(const void* first);

/// All lanes of a warp call it together. Where A lies in registers, B is 16 rows of a square.
/// Otherwise A and B are 16 elements of 64 rows each, and B is transposed.
void start_product(const Product& mine, Where where);
void close_product_group();
/// Computes all but the latest `pending_groups` groups of the warp.
void finish_products(int pending_groups, Where where);

}  // namespace ladder::on_cpu
