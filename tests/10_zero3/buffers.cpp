// Chapters 08 to 10: a shard's buffer where a whole one belongs, and the other way round, does not
// compile. The compiler runs this test.
#include <concepts>

#include "chapters/08_zero1/zero1.h"
#include "chapters/09_zero2/zero2.h"
#include "chapters/10_zero3/zero3.h"

namespace ladder::test {
namespace {

template <class Buffer>
concept Gathered = requires(const Ctx& ctx, CommStream& comm_stream, const ParamLayout& layout,
                            Buffer params) {
  all_gather(ctx, comm_stream, layout, params);
};
static_assert(Gathered<Tensor> && !Gathered<Shard> && !Gathered<Flat>);

template <class Buffer>
concept Reduced = requires(const Ctx& ctx, Zero1& zero1, Buffer grads) {
  zero1.ready(grads, 0);
  zero1.finish(ctx, grads);
};
static_assert(Reduced<Tensor> && !Reduced<Shard> && !Reduced<Flat>);

template <class Buffer>
concept Owned = std::constructible_from<GatheredParams, Arena&, CommStream&, const ParamLayout&,
                                        const ParamLayout&, Buffer, const Zero3Options&>;
static_assert(Owned<Shard> && !Owned<Tensor> && !Owned<Flat>);

// Gradients of chapter 09 are a shard's, and weights of chapter 10.
template <class Buffer>
concept Finished = requires(const Ctx& ctx, ShardedGrads& grads) {
  { grads.finish(ctx) } -> std::same_as<Buffer>;
};
static_assert(Finished<Shard>);
static_assert(std::same_as<decltype(ShardWeights::compute), Shard>);

}  // namespace
}  // namespace ladder::test
