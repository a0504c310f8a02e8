// The gradient of a bias: for each column, the sum over all tokens.
#include "kernels/cuda/columns.h"
#include "kernels/cuda/table.h"
#include "kernels/documents.h"
#include "kernels/shapes.h"

namespace ladder::LADDER_CUDA {
namespace {

/// The terms of db, for sum_columns.
template <class T, int W>
struct BiasTerms {
  const T* dout;  ///< (B,T,N)
  int64_t N;

  __device__ void add(Floats<W> (&sum)[1], int64_t row, int64_t n) const {
    const Floats<W> d = load<W>(dout + row * N + n);
    for (int i = 0; i < W; ++i) sum[0].at[i] += d.at[i];
  }
};

}  // namespace

void bias_backward(const Ctx& ctx, Tensor db, Tensor dout, Into into) {
  const Extents s = check_shapes(Op::bias_backward, db, dout);
  Scratch scratch(ctx);
  dispatch(dout.dtype, [&]<class T>(Type<T>) {
    dispatch_width<T>(s.N, {dout}, [&]<int W>(Width<W>) {
      const BiasTerms<T, W> terms{.dout = device_data<T>(dout), .N = s.N};
      sum_columns<1, W>(ctx, {device_data<float>(db)}, scratch, terms,
                        {ctx.token_chunks, sequences_of(ctx, s.B, s.T)}, s.N, into);
    });
  });
}

}  // namespace ladder::LADDER_CUDA
