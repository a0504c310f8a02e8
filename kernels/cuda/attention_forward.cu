// Causal attention, forward: chooses the engine.
#include "kernels/cuda/attention_engines.h"
#include "kernels/cuda/attention_forward.h"
#include "kernels/cuda/hopper.h"
#include "kernels/cuda/table.h"
#include "kernels/documents.h"

namespace ladder::LADDER_CUDA {
namespace {

/// 128 queries a block, 64 keys at a time. With two strips a warp reads keys half as often. With
/// 128 channels the sums of two strips would not fit into registers.
template <class T, int kHS>
using ForwardMma = Mma<T, kHS, kHS <= 64 ? 2 : 1, kHS <= 64 ? 4 : 8, 64, 64>;

/// The same in less shared memory.
template <class T, int kHS>
struct SmallForwardMma : ForwardMma<T, kHS> {
  static constexpr SecondStage kSecondStage = SecondStage::OverOwned;
};

}  // namespace

void attention_forward(const Ctx& ctx, Tensor out, Tensor lse, Tensor qkv) {
  const Extents s = piece_of(check_shapes(Op::attention_forward, out, lse, qkv));
  check_aligned({out, qkv});
  clear_padding_of(ctx, {out, lse});
  if (const Hopper* hopper = hopper_for(ctx, qkv.dtype, s.HS))
    return hopper->attention_forward(ctx, s, out, lse, qkv);
  with_engine<ForwardMma, SmallForwardMma>(
      ctx, qkv.dtype, s.HS, [&]<class E>(Type<E>) { attend_forward<E>(ctx, s, out, lse, qkv); });
}

void attention_piece_forward(const Ctx& ctx, Tensor o, Tensor m, Tensor l, Tensor q, Tensor kv,
                             const AttentionPositions& place) {
  refuse_documents(ctx, "attention_piece_forward");
  const Extents s = check_shapes(Op::attention_piece_forward, o, m, l, q, kv, place);
  check_aligned({o, q, kv});
  if (const Hopper* hopper = hopper_for(ctx, q.dtype, s.HS))
    return hopper->attention_piece_forward(ctx, s, o, m, l, q, kv, place);
  with_engine<ForwardMma, SmallForwardMma>(ctx, q.dtype, s.HS, [&]<class E>(Type<E>) {
    attend_piece_forward<E>(ctx, s, o, m, l, q, kv, place);
  });
}

}  // namespace ladder::LADDER_CUDA
