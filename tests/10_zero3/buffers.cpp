// 08 to 10: a shard's buffer where a whole one belongs, or the other way round, does not compile.
#include <concepts>

#include <gtest/gtest.h>

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

template <class Buffer>
concept Reduced = requires(const Ctx& ctx, Zero1& zero1, Buffer grads) {
  zero1.section_done(grads, 0);
  zero1.wait(ctx, grads);
};

template <class Buffer>
concept Owned = std::constructible_from<GatheredParams, Arena&, CommStream&, const ParamLayout&,
                                        const ParamLayout&, Buffer, const Zero3Options&>;

// Gradients of chapter 09 are a shard's, and weights of chapter 10.
template <class Buffer>
concept Finished = requires(const Ctx& ctx, ShardedGrads& grads) {
  { grads.finish(ctx) } -> std::same_as<Buffer>;
};

TEST(Buffers, AShardIsNoWholeBuffer) {
  EXPECT_TRUE((Gathered<Tensor> && !Gathered<Shard> && !Gathered<Flat>));
  EXPECT_TRUE((Reduced<Tensor> && !Reduced<Shard> && !Reduced<Flat>));
  EXPECT_TRUE((Owned<Shard> && !Owned<Tensor> && !Owned<Flat>));
  EXPECT_TRUE((Finished<Shard>));
  EXPECT_TRUE((std::same_as<decltype(WeightShard::compute), Shard>));
}

}  // namespace
}  // namespace ladder::test
