// AdamW with moments that are kept as 8-bit codes. A thread widens, updates and narrows four
// neighbors. Half a warp has a block of elements, with one scale.
#include <algorithm>
#include <bit>
#include <tuple>

#include "kernels/cuda/adam_step.h"
#include "kernels/cuda/table.h"
#include "kernels/cuda/vectors.h"
#include "kernels/cuda/warp.h"
#include "kernels/quantize.h"
#include "kernels/shapes.h"
#include "launch.h"

namespace ladder::LADDER_CUDA {
namespace {

/// How many elements a thread has, and how many threads a block of elements has.
constexpr int kOwn = 4;
constexpr int kOfBlock = kQuantBlock / kOwn;

/// The tables of kernels/quantize.h in the form that device code uses. Lanes that read different
/// places of shared memory take several turns, so a bucket has only one word. Its upper part is the
/// lowest code of the bucket. Its lower 16 bits tell beyond which float of the bucket the next code
/// holds.
struct Codes {
  float value[256];
  uint32_t bucket[std::tuple_size_v<decltype(QuantTable::lowest)>];
};
constexpr Codes make_codes(bool has_sign) {
  constexpr uint32_t kNone = (1U << QuantTable::kDrop) - 1;
  const QuantCode code = make_quant_code(has_sign);
  const QuantTable table = make_quant_table(code);
  Codes codes{};
  for (size_t i = 0; i < 256; ++i) codes.value[i] = code.value[i];
  for (size_t i = 0; i < table.lowest.size(); ++i) {
    const auto lowest = static_cast<uint32_t>(table.lowest[i]);
    const auto midpoint = std::bit_cast<uint32_t>(table.midpoint[lowest]);
    const bool inside = midpoint >> QuantTable::kDrop == QuantTable::kFirst + i;
    codes.bucket[i] = lowest << QuantTable::kDrop | (inside ? midpoint & kNone : kNone);
  }
  return codes;
}
__device__ constexpr Codes kCodes[2] = {make_codes(true), make_codes(false)};

/// Copies both tables to shared memory, where lanes that read different entries wait least.
__device__ void copy_codes(Codes (&codes)[2]) {
  constexpr int kWords = 2 * sizeof(Codes) / sizeof(uint32_t);
  for (int i = static_cast<int>(threadIdx.x); i < kWords; i += static_cast<int>(blockDim.x))
    reinterpret_cast<uint32_t*>(codes)[i] = reinterpret_cast<const uint32_t*>(kCodes)[i];
  __syncthreads();
}

/// quantize() of kernels/quantize.h for x in [-1, 1], by table. NaN gets code 0.
template <bool kHasSign>
__device__ uint32_t quantize(const Codes& codes, float x) {
  constexpr uint32_t kFirst = QuantTable::kFirst << QuantTable::kDrop;
  const float magnitude = fabsf(x);
  const auto bits = magnitude <= 1 ? std::max(std::bit_cast<uint32_t>(magnitude), kFirst) : kFirst;
  const uint32_t bucket = codes.bucket[(bits >> QuantTable::kDrop) - QuantTable::kFirst];
  const uint32_t code = (bucket >> QuantTable::kDrop) + ((bits & 0xFFFF) > (bucket & 0xFFFF));
  if (kHasSign) return x < 0 && code > 0 ? 128 + code : code;
  return code == 0 && magnitude > 0 ? 1 : code;
}

/// Four codes, as one word if they are aligned and all there.
template <int W>
__device__ uint32_t load_codes(const uint8_t* from, int64_t count) {
  if (W > 1 && count >= kOwn) return *reinterpret_cast<const uint32_t*>(from);
  uint32_t codes = 0;
  for (int i = 0; i < kOwn; ++i)
    if (i < count) codes |= uint32_t{from[i]} << 8 * i;
  return codes;
}
template <int W>
__device__ void store_codes(uint8_t* to, uint32_t codes, int64_t count) {
  if (W > 1 && count >= kOwn)
    *reinterpret_cast<uint32_t*>(to) = codes;
  else
    for (int i = 0; i < kOwn; ++i)
      if (i < count) to[i] = static_cast<uint8_t>(codes >> 8 * i);
}

/// Four elements of a moment as they lie in memory.
struct Quantized {
  uint32_t codes;
  float scale;

  __device__ Floats<kOwn> wide(const Codes& table) const {
    Floats<kOwn> x;
    for (int j = 0; j < kOwn; ++j) x.at[j] = table.value[codes >> 8 * j & 0xFF] * scale;
    return x;
  }
};

/// One of the two moments: its codes (n), and its scales, one per kQuantBlock elements.
struct Moment {
  uint8_t* codes;
  float* scales;

  /// Elements [i, i + 4). Those past the end, which is `count` away, are 0.
  template <int W>
  __device__ Quantized load(int64_t i, int64_t count) const {
    return {load_codes<W>(codes + i, count), count > 0 ? scales[i / kQuantBlock] : 0};
  }
  /// quantize_block(), by the threads that share the block. x is 0 past the end. NaN does not count
  /// for the scale.
  template <int W, bool kHasSign>
  __device__ void store(const Codes& table, int64_t i, int64_t count, const Floats<kOwn>& x) const {
    float largest = 0;
    for (int j = 0; j < kOwn; ++j) largest = fmaxf(largest, fabsf(x.at[j]));
    for (int step = kOfBlock / 2; step > 0; step /= 2)
      largest = fmaxf(largest, __shfl_xor_sync(kAllLanes, largest, step));
    const Divisor scale(largest);  // if all are 0, each becomes NaN, whose code is 0
    uint32_t four = 0;
    for (int j = 0; j < kOwn; ++j)
      four |= quantize<kHasSign>(table, scale.divide(x.at[j])) << 8 * j;
    store_codes<W>(codes + i, four, count);
    __syncwarp();  // all lanes have read the scale: a shuffle orders no memory
    if (count > 0 && lane_index() % kOfBlock == 0) scales[i / kQuantBlock] = largest;
  }
};

/// The operands of one call.
struct Operands {
  float* param;  ///< (n)
  Moment m, v;
  const float* grad;  ///< (n)
  int64_t n;
};

/// Four neighboring elements of all operands.
struct Own {
  Floats<kOwn> w, g;
  Quantized m, v;

  /// Elements [i, i + 4), or only the first `count` of them. Past the end `count` is not positive.
  template <int W>
  static __device__ Own load(const Operands& all, int64_t i, int64_t count) {
    return {load_part<kOwn, W>(all.param + i, count), load_part<kOwn, W>(all.grad + i, count),
            all.m.load<W>(i, count), all.v.load<W>(i, count)};
  }
  /// The threads of a warp call it together.
  template <int W>
  __device__ void update(const Operands& all, const Codes (&codes)[2], const AdamMove& move,
                         int64_t i, int64_t count) {
    Floats<kOwn> wide_m = m.wide(codes[0]), wide_v = v.wide(codes[1]);
    for (int j = 0; j < kOwn; ++j) adam_step(w.at[j], wide_m.at[j], wide_v.at[j], g.at[j], move);
    store_part<kOwn, W>(all.param + i, w, count);
    all.m.store<W, true>(codes[0], i, count, wide_m);
    all.v.store<W, false>(codes[1], i, count, wide_v);
  }
};

/// Threads of a block, which has its own tables; and blocks: more than a GPU runs at once.
constexpr int kUpdateThreads = 512;
constexpr int64_t kUpdateBlocks = 512;

/// A thread loads its next elements before it computes with those that it has. So memory is busy
/// while threads compute.
template <int W>
__global__ void __launch_bounds__(kUpdateThreads) update(Operands all, AdamMove move) {
  __shared__ Codes codes[2];
  copy_codes(codes);
  const int64_t of_warp = kWarp * kOwn, whole = all.n / of_warp * of_warp;
  const int64_t step = thread_count() * kOwn, ahead = lane_index() * kOwn;
  int64_t first = thread_index() / kWarp * of_warp;
  Own next{};
  if (first < whole) next = Own::load<W>(all, first + ahead, kOwn);
  for (; first < whole; first += step) {
    Own own = next;
    if (first + step < whole) next = Own::load<W>(all, first + step + ahead, kOwn);
    own.update<W>(all, codes, move, first + ahead, kOwn);
  }
  // One warp has the last elements, too few for all of its lanes.
  if (const int64_t i = first + ahead, count = all.n - i; first < all.n)
    Own::load<1>(all, i, count).update<1>(all, codes, move, i, count);
}

}  // namespace

void adamw8bit_update(const Ctx& ctx, Tensor param, Tensor m_code, Tensor m_scale, Tensor v_code,
                      Tensor v_scale, Tensor grad, const AdamStep& step) {
  const int64_t n =
      check_shapes(Op::adamw8bit_update, param, m_code, m_scale, v_code, v_scale, grad).N;
  const Operands all{.param = device_data<float>(param),
                     .m = {device_data<uint8_t>(m_code), device_data<float>(m_scale)},
                     .v = {device_data<uint8_t>(v_code), device_data<float>(v_scale)},
                     .grad = device_data<float>(grad),
                     .n = n};
  const int64_t blocks = std::min(ceil_div(n, kUpdateThreads * kOwn), kUpdateBlocks);
  dispatch_width<kOwn>({param, m_code, v_code, grad}, [&]<int W>(Width<W>) {
    launch(ctx, update<W>, {.x = blocks}, kUpdateThreads, 0, all, AdamMove(step));
  });
}

}  // namespace ladder::LADDER_CUDA
