// From one floating-point format to another.
#include "kernels/cuda/fp8_codes.h"
#include "kernels/cuda/table.h"
#include "kernels/narrow.h"
#include "kernels/shapes.h"

namespace ladder::LADDER_CUDA {
namespace {

/// Neighbors that a thread takes: 16 bytes of a 16-bit format.
constexpr int kNeighbors = 8;

/// out, inp (n)
template <int W, class To, class From>
__global__ void convert(To* out, const From* inp, int64_t n) {
  const int64_t i = thread_index() * W, count = n - i;
  if (count > 0) store_part<W>(out + i, load_part<W>(inp + i, count), count);
}

/// Elements as they lie in memory, as a source of codes (make_codes_of).
template <class From>
struct InMemory {
  const From* inp;

  template <int W>
  __device__ Floats<W> part(int64_t i, int64_t count) const {
    return load_part<W>(inp + i, count);
  }
};

template <int W, class From>
void cast_from(const Ctx& ctx, const Tensor& out, const Tensor& inp) {
  if (is_fp8(out.dtype)) return make_codes_of<W>(ctx, out, InMemory<From>{device_data<From>(inp)});
  dispatch(out.dtype, [&]<class To>(Type<To>) {
    launch(ctx, convert<W, To, From>, grid_over<W>(inp.size()), kThreads, 0, device_data<To>(out),
           device_data<From>(inp), inp.size());
  });
}

}  // namespace

void cast(const Ctx& ctx, Tensor out, Tensor inp) {
  check_shapes(Op::cast, out, inp);
  dispatch(inp.dtype, [&]<class From>(Type<From>) {
    dispatch_width<kNeighbors>({out, inp},
                               [&]<int W>(Width<W>) { cast_from<W, From>(ctx, out, inp); });
  });
}

}  // namespace ladder::LADDER_CUDA
