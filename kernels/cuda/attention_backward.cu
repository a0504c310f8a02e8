// Causal attention, backward: chooses the engine.
#include "kernels/cuda/attention_backward.h"
#include "kernels/cuda/attention_engines.h"
#include "kernels/cuda/hopper.h"
#include "kernels/cuda/table.h"

namespace ladder::LADDER_CUDA {
namespace {

/// 128 owned rows a block, 64 partners a stage, 16 at a time. Two sums, two factors and two tiles
/// of scores lie in registers.
template <class T, int kHS>
using BackwardMma = Mma<T, kHS, kHS <= 64 ? 2 : 1, kHS <= 64 ? 4 : 8, 64, 16>;

/// In less shared memory: 16 partners a stage. One strip a warp, for 128 channels.
template <class T, int kHS>
using SmallBackwardMma = Mma<T, kHS, 1, 8, 16, 16>;

}  // namespace

void attention_backward(const Ctx& ctx, Tensor dqkv, Tensor dout, Tensor qkv, Tensor out,
                        Tensor lse) {
  const Extents s = piece_of(check_shapes(Op::attention_backward, dqkv, dout, qkv, out, lse));
  check_aligned({dqkv, dout, qkv, out});
  clear_padding_of(ctx, {dqkv});
  if (const Hopper* hopper = hopper_for(ctx, qkv.dtype, s.HS))
    return hopper->attention_backward(ctx, s, dqkv, dout, qkv, out, lse);
  with_engine<BackwardMma, SmallBackwardMma>(ctx, qkv.dtype, s.HS, [&]<class E>(Type<E>) {
    attend_backward<E>(ctx, s, dqkv, dout, qkv, out, lse);
  });
}

void attention_piece_backward(const Ctx& ctx, Tensor dq, Tensor dkv, Tensor dout, Tensor q,
                              Tensor kv, Tensor out, Tensor lse, const AttentionPositions& place) {
  const Extents s =
      check_shapes(Op::attention_piece_backward, dq, dkv, dout, q, kv, out, lse, place);
  check_aligned({dq, dkv, dout, q, kv, out});
  if (const Hopper* hopper = hopper_for(ctx, q.dtype, s.HS))
    return hopper->attention_piece_backward(ctx, s, dq, dkv, dout, q, kv, out, lse, place);
  with_engine<BackwardMma, SmallBackwardMma>(ctx, q.dtype, s.HS, [&]<class E>(Type<E>) {
    attend_piece_backward<E>(ctx, s, dq, dkv, dout, q, kv, out, lse, place);
  });
}

}  // namespace ladder::LADDER_CUDA
