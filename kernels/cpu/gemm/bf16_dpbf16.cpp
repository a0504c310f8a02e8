// For CPUs with VDPBF16PS.
#include "kernels/cpu/gemm/bf16.h"

#include <immintrin.h>

#include "kernels/cpu/gemm/rectangle.h"

namespace ladder {
namespace {

/// Each word is two BF16; the earlier k is in its upper half.
struct Pairs {
  static constexpr int64_t kStep = 2;

  template <size_t First, size_t Last, size_t Rows>
  static HWY_INLINE void multiply(RowsOf<First, Last>, Acc<Rows>& acc, const float* a,
                                  const float* b, int64_t steps) {
    for (int64_t k = 0; k < steps; ++k, a += kMr, b += kNr) {
      ask_ahead<kMr>(a);
      ask_ahead<kNr>(b);
      const auto b0 = reinterpret_cast<__m512bh>(hn::Load(kVec, b).raw);
      const auto b1 = reinterpret_cast<__m512bh>(hn::Load(kVec, b + kLanes).raw);
#pragma GCC unroll 16
      for (size_t i = First; i < Last; ++i) {
        const auto ai = reinterpret_cast<__m512bh>(_mm512_set1_ps(a[i]));
        acc[i][0].raw = _mm512_dpbf16_ps(acc[i][0].raw, ai, b0);
        acc[i][1].raw = _mm512_dpbf16_ps(acc[i][1].raw, ai, b1);
      }
    }
  }
};

}  // namespace

bool multiplies_pairs(const Product& product) {
  return is_bf16_exactly(product.a.dtype) && is_bf16_exactly(product.b.dtype);
}

TileShape tile_of_pairs() { return kVectorTile; }

void rectangle_of_pairs(const Product& product, Range rows, Range cols,
                        std::span<std::byte> scratch) {
  rectangle_of<Pairs>(product, rows, cols, scratch);
}

}  // namespace ladder
