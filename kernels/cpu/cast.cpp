// Conversion from one floating-point format to another.
#include <cstring>

#include "kernels/cpu/dispatch.h"
#include "kernels/cpu/lanes.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/table.h"
#include "kernels/shapes.h"

namespace ladder::cpu {
namespace {

/// Writes the codes of inp[range] times `scale`. Returns the largest magnitude, or NaN if there is
/// one.
template <class Fp8, class T>
float quantize(Fp8* out, const T* inp, Range range, float scale) {
  const hn::Rebind<uint8_t, Lanes> bytes;
  const hn::RebindToSigned<Lanes> ints;
  Vec largest = zero();
  for_vectors(range.begin, range.end, [&](int64_t i, auto io) {
    const Vec x = io.load(inp + i);
    largest = MaxOrNaN{}(largest, hn::Abs(x));
    uint8_t code[kLanes];
    // TruncateTo would do, but Highway 1.0.3 has it wrong on AVX-512 with VBMI.
    const auto codes = hn::BitCast(ints, codes_of<Fp8>(hn::Mul(x, broadcast(scale))));
    hn::StoreU(hn::DemoteTo(bytes, codes), bytes, code);
    std::memcpy(out + i, code, static_cast<size_t>(std::min(kLanes, range.end - i)));
  });
  return reduce_lanes(kVec, largest, MaxOrNaN{});
}

template <class Fp8, class T>
void cast_to_fp8(const Ctx& ctx, const Tensor& out, const Tensor& inp) {
  const std::span<float> largest = shared_scratch<float>(ctx, ctx.threads);
  std::fill(largest.begin(), largest.end(), 0.0f);
  on_threads(ctx, [&](int thread) {
    const Range part = part_of(thread, ctx.threads, inp.size(), kAlign);
    largest[static_cast<size_t>(thread)] =
        quantize(out.data<Fp8>(), inp.data<T>(), part, out.fp8->scale);
  });
  for (float one : largest) out.fp8->amax = larger(out.fp8->amax, one);
}

template <class To, class Wide, class From>
void cast_to(const Ctx& ctx, const Tensor& out, const Tensor& inp) {
  To* y = out.data<To>();
  const From* x = inp.data<From>();
  parallel_for(ctx, inp.size(), kAlign, 1, [&](Range range) {
    for_vectors<Wide>(range.begin, range.end,
                      [&](int64_t i, auto io) { io.store(io.load(x + i), y + i); });
  });
}

}  // namespace

void cast(const Ctx& ctx, Tensor out, Tensor inp) {
  check_shapes(Op::cast, out, inp);
  dispatch(inp, [&]<class From>(From) {
    switch (out.dtype) {
      case Dtype::E4M3: return cast_to_fp8<E4m3, From>(ctx, out, inp);
      case Dtype::E5M2: return cast_to_fp8<E5m2, From>(ctx, out, inp);
      default:
        dispatch_out(out, {inp}, [&]<class To, class Wide>(To, Wide) {
          cast_to<To, Wide, From>(ctx, out, inp);
        });
    }
  });
}

}  // namespace ladder::cpu
