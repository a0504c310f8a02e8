// Faults planted in small kernels, each beside a twin without it: the stand-in for a GPU must see
// the one and pass the other. On a GPU these are races and undefined behavior.
#include "launch.h"
#include "ptx.h"
#include "tests/kernels/cuda/faults.h"
#include "wgmma.h"

namespace ladder::test {
namespace {

using cuda_on_cpu::launch;

constexpr int kN = 64;
constexpr unsigned kAll = 0xFFFFFFFF;

/// out = inp backwards, through shared memory. out, inp (kN)
template <bool kBarrier>
__global__ void reverse(float* out, const float* inp) {
  __shared__ float x[kN];
  x[threadIdx.x] = inp[threadIdx.x];
  if (kBarrier) __syncthreads();
  out[threadIdx.x] = x[kN - 1 - threadIdx.x];
}

/// The same within each warp, whose lanes do not wait for each other by themselves.
template <bool kBarrier>
__global__ void reverse_warps(float* out, const float* inp) {
  float* x = cuda_on_cpu::dynamic_shared<float>();
  x[threadIdx.x] = inp[threadIdx.x];
  if (kBarrier) __syncwarp();
  out[threadIdx.x] = x[threadIdx.x ^ 31];
}

/// A second use of the buffer before the first is read everywhere.
template <bool kBarrier>
__global__ void reverse_twice(float* out, const float* inp) {
  __shared__ float x[kN];
  const unsigned t = threadIdx.x, mirror = kN - 1 - t;
  x[t] = inp[t];
  __syncthreads();
  const float turned = x[mirror];
  if (kBarrier) __syncthreads();
  x[t] = 2 * turned;
  __syncthreads();
  out[t] = turned + x[mirror] - 2 * inp[t];
}

/// The same fault where it shows only if one warp is far ahead: there are twenty exchanges between
/// its reading and its writing.
template <bool kBarrier>
__global__ void reverse_far_ahead(float* out, const float* inp) {
  __shared__ float x[kN];
  const unsigned t = threadIdx.x;
  x[t] = inp[t];
  __syncthreads();
  const float turned = x[kN - 1 - t];
  if (kBarrier) __syncthreads();
  float late = turned;
  for (int i = 0; i < 20; ++i) late = __shfl_xor_sync(kAll, late, 31);
  x[t] = 2 * late;
  out[t] = turned;
}

/// Block 1 needs what block 0 writes; no order among blocks is given.
template <bool kAlone>
__global__ void chain(float* out, const float* inp) {
  const unsigned i = blockIdx.x * 32 + threadIdx.x;
  if (kAlone || blockIdx.x == 0)
    out[i] = inp[kN - 1 - i];
  else
    out[i] = out[i - 32] + inp[kN - 1 - i] - inp[kN - 1 - i + 32];
}

TEST_F(Faults, MissingBarrier) { expect_seen(reverse<true>, reverse<false>, {.threads = kN}); }

TEST_F(Faults, MissingBarrierOfAWarp) {
  const Start start{.blocks = 1, .threads = 32, .shared_bytes = 32 * sizeof(float)};
  expect_seen(reverse_warps<true>, reverse_warps<false>, start, 32);
}

TEST_F(Faults, MissingSecondBarrier) {
  expect_seen(reverse_twice<true>, reverse_twice<false>, {.threads = kN});
}

TEST_F(Faults, MissingBarrierBeforeAWarpFarAhead) {
  expect_seen(reverse_far_ahead<true>, reverse_far_ahead<false>, {.threads = kN});
}

TEST_F(Faults, OrderOfBlocks) {
  expect_seen(chain<true>, chain<false>, {.blocks = 2, .threads = 32});
}

/// The last element of shared memory is read, but never written; then the last of the output.
template <int kWritten>
__global__ void reverse_some(float* out, const float* inp) {
  __shared__ float x[kN];
  if (threadIdx.x < kWritten) x[threadIdx.x] = inp[threadIdx.x];
  __syncthreads();
  out[threadIdx.x] = x[kN - 1 - threadIdx.x];
}
template <int kWritten>
__global__ void write_some(float* out, const float* inp) {
  if (threadIdx.x < kWritten) out[threadIdx.x] = inp[kN - 1 - threadIdx.x];
}

TEST_F(Faults, UnwrittenElements) {
  expect_right_for_all_seeds(reverse_some<kN>, {.threads = kN});
  EXPECT_TRUE(std::isnan(run(reverse_some<kN - 1>, {.threads = kN})[0]));
  // The block before leaves nothing behind in shared memory.
  EXPECT_TRUE(std::isnan(run(reverse_some<kN - 1>, {.threads = kN})[0]));
  expect_right_for_all_seeds(write_some<kN>, {.threads = kN});
  EXPECT_TRUE(std::isnan(run(write_some<kN - 1>, {.threads = kN})[kN - 1]));
}

/// Lanes below `kLanesThere` come to the shuffle.
template <int kLanesThere>
__global__ void mirror(float* out, const float* inp) {
  float x = inp[threadIdx.x];
  if (static_cast<int>(threadIdx.x) < kLanesThere) x = __shfl_xor_sync(kAll, x, 31);
  out[threadIdx.x] = x;
}
/// The lanes come to two different shuffles.
__global__ void mirror_in_branches(float* out, const float* inp) {
  float x = inp[threadIdx.x];
  if (threadIdx.x % 2 == 0)
    x = __shfl_xor_sync(kAll, x, 31);
  else
    x = __shfl_xor_sync(kAll, x, 31);
  out[threadIdx.x] = x;
}
/// A mask that names half of the warp, and a shuffle that reads the other half.
template <unsigned kMask>
__global__ void mirror_masked(float* out, const float* inp) {
  out[threadIdx.x] = __shfl_xor_sync(kMask, inp[threadIdx.x], 31);
}
/// Correct: both halves, each with a mask of its own.
__global__ void mirror_halves(float* out, const float* inp) {
  const bool low = threadIdx.x < 16;
  const float x = __shfl_xor_sync(low ? 0x0000FFFF : 0xFFFF0000, inp[threadIdx.x], 15);
  out[threadIdx.x] = __shfl_xor_sync(kAll, x, 16);
}

TEST_F(Faults, DivergentShuffle) {
  const Start warp{.blocks = 1, .threads = 32};
  expect_right_for_all_seeds(mirror<32>, warp, 32);
  expect_right_for_all_seeds(mirror_halves, warp, 32);
  expect_error(mirror<31>, warp, "__shfl_xor_sync", "thread 31 has returned");
  expect_error(mirror_in_branches, warp, "__shfl_xor_sync", "waits in __shfl_xor_sync");
  expect_error(mirror_masked<0x0000FFFF>, warp, "__shfl_xor_sync", "leaves out lane");
  expect_error(mirror<32>, {.blocks = 1, .threads = 16}, "__shfl_xor_sync",
               "thread 16 does not exist");
}

/// Threads below `kThreadsThere` come to the barrier; the others return.
template <int kThreadsThere>
__global__ void meet(float* out, const float* inp) {
  if (static_cast<int>(threadIdx.x) < kThreadsThere) __syncthreads();
  out[threadIdx.x] = inp[kN - 1 - threadIdx.x];
}
__global__ void meet_in_branches(float* out, const float* inp) {
  if (threadIdx.x % 2 == 0)
    __syncthreads();
  else
    __syncthreads();
  out[threadIdx.x] = inp[kN - 1 - threadIdx.x];
}
/// Half of the block waits for a barrier, half for a vote of its warp.
__global__ void meet_or_vote(float* out, const float* inp) {
  if (threadIdx.x % 2 == 0)
    __syncthreads();
  else
    __any_sync(kAll, true);
  out[threadIdx.x] = inp[kN - 1 - threadIdx.x];
}

TEST_F(Faults, DivergentBarrier) {
  expect_right_for_all_seeds(meet<kN>, {.threads = kN});
  expect_error(meet<40>, {.threads = kN}, "__syncthreads", "thread 40 has returned");
  expect_error(meet_in_branches, {.threads = kN}, "__syncthreads", "waits in __syncthreads");
  expect_error(meet_or_vote, {.threads = kN}, "a vote", "waits in __syncthreads");
}

TEST_F(Faults, AnErrorNamesItsKernelAndLeavesNothingBehind) {
  expect_error(meet<40>, {.blocks = 1, .threads = kN}, "faults.h:", "block (0, 0, 0)");
  expect_right_for_all_seeds(meet<kN>, {.threads = kN});
}

/// out = inp backwards, brought by cp.async. Four elements a thread.
template <bool kCommit, bool kWait, bool kBarrier>
__global__ void reverse_async(float* out, const float* inp) {
  alignas(16) __shared__ float x[kN];
  const unsigned first = 4 * threadIdx.x;
  cuda_on_cpu::cp_async_16(x + first, inp + first);
  if (kCommit) cuda_on_cpu::cp_async_commit();
  if (kWait) cuda_on_cpu::cp_async_wait<0>();
  if (kBarrier) __syncthreads();
  for (unsigned i = first; i < first + 4; ++i) out[i] = x[kN - 1 - i];
}

TEST_F(Faults, CopyThatNobodyWaitsFor) {
  const Start start{.threads = kN / 4};
  expect_right_for_all_seeds(reverse_async<true, true, true>, start);
  expect_wrong_for_some_seed(reverse_async<true, false, true>, start);  // no wait
  expect_wrong_for_some_seed(reverse_async<false, true, true>, start);  // an open group
  expect_wrong_for_some_seed(reverse_async<true, true, false>, start);  // no barrier behind it
  expect_races(reverse_async<true, true, true>, start, false);
  expect_races(reverse_async<true, false, true>, start, true);
  expect_races(reverse_async<false, true, true>, start, true);
  expect_races(reverse_async<true, true, false>, start, true);
}

/// A copy into what others still read: it may land at any time from its start on.
template <bool kEarly>
__global__ void reverse_then_fetch(float* out, const float* inp) {
  alignas(16) __shared__ float x[kN];
  const unsigned first = 4 * threadIdx.x;
  const auto fetch = [&](const float* from) {
    cuda_on_cpu::cp_async_16(x + first, from);
    cuda_on_cpu::cp_async_commit();
  };
  for (unsigned i = first; i < first + 4; ++i) x[i] = inp[i];
  __syncthreads();
  if (kEarly) fetch(inp + kN - 4 - first);
  for (unsigned i = first; i < first + 4; ++i) out[i] = x[kN - 1 - i];
  __syncthreads();
  if (!kEarly) fetch(inp + kN - 4 - first);
  cuda_on_cpu::cp_async_wait<0>();
}

TEST_F(Faults, CopyThatLandsEarly) {
  const Start start{.threads = kN / 4};
  expect_right_for_all_seeds(reverse_then_fetch<false>, start);
  if (!on_cpu::watcher) expect_wrong_for_some_seed(reverse_then_fetch<true>, start);
  expect_races(reverse_then_fetch<false>, start, false);
  expect_races(reverse_then_fetch<true>, start, true);
}

/// Two groups: the older one has landed, the younger one perhaps not.
__global__ void wait_for_the_older(float* out, const float* inp) {
  alignas(16) __shared__ float x[8];
  for (int group = 0; group < 2; ++group) {
    cuda_on_cpu::cp_async_16(x + 4 * group, inp + 4 * group);
    cuda_on_cpu::cp_async_commit();
  }
  cuda_on_cpu::cp_async_wait<1>();
  for (int i = 0; i < 8; ++i) out[i] = x[i];
  cuda_on_cpu::cp_async_wait<0>();
  for (int i = 8; i < 16; ++i) out[i] = x[i - 8];
}

TEST_F(Faults, GroupsOfCopiesLandInOrder) {
  if (on_cpu::watcher) GTEST_SKIP() << "where accesses are watched, all copies land late";
  int landed = 0;
  for (int seed = 0; seed < kSeeds; ++seed) {
    on_cpu::set_seed(static_cast<uint64_t>(seed));
    const auto got = run(wait_for_the_older, {.blocks = 1, .threads = 1});
    for (size_t i = 0; i < 4; ++i) EXPECT_EQ(got[i], input()[i]) << i;
    for (size_t i = 8; i < 16; ++i) EXPECT_EQ(got[i], input()[i - 8]) << i;
    landed += std::isnan(got[4]) ? 0 : 1;
  }
  EXPECT_GT(landed, 0);
  EXPECT_LT(landed, kSeeds);
}

enum class Product : uint8_t { Right, ReadEarly, OverwrittenEarly, NeverAwaited };

/// out = inp backwards, by a product of four warps: a column of ones times a row of inp.
template <Product kFault>
__global__ void reverse_by_product(float* out, const float* inp) {
  auto* b = cuda_on_cpu::dynamic_shared<__nv_bfloat16>();  // (16,64): inp, then zeros
  for (unsigned i = threadIdx.x; i < 16 * kN; i += blockDim.x)
    b[i] = __float2bfloat16_rn(i < kN ? inp[i] : 0.0f);
  cuda_on_cpu::fence_shared_for_tensor_cores();
  __syncthreads();
  const uint32_t one = threadIdx.x % 4 == 0 ? 0x3F80 : 0;  // of column 0, in BF16
  float sums[8][4] = {};
  cuda_on_cpu::begin_products();
  cuda_on_cpu::start_product(sums, {one, one, 0, 0}, cuda_on_cpu::describe(b));
  cuda_on_cpu::commit_products();
  if (kFault == Product::OverwrittenEarly) b[threadIdx.x] = __float2bfloat16_rn(0.0f);
  if (kFault != Product::ReadEarly && kFault != Product::NeverAwaited)
    cuda_on_cpu::wait_for_products<0>(sums);
  for (unsigned n = 0; n < 8 && threadIdx.x < 4; ++n)  // row 0 of the result
    for (unsigned c = 0; c < 2; ++c) out[kN - 1 - (8 * n + 2 * threadIdx.x + c)] = sums[n][c];
  if (kFault == Product::ReadEarly) cuda_on_cpu::wait_for_products<0>(sums);
}

TEST_F(Faults, ProductThatNobodyWaitsFor) {
  const Start start{.threads = 128, .shared_bytes = 16 * kN * sizeof(__nv_bfloat16)};
  expect_right_for_all_seeds(reverse_by_product<Product::Right>, start);
  expect_wrong_for_some_seed(reverse_by_product<Product::ReadEarly>, start);
  expect_wrong_for_some_seed(reverse_by_product<Product::OverwrittenEarly>, start);
  expect_error(reverse_by_product<Product::NeverAwaited>, start, "thread",
               "has returned before its products");
  expect_races(reverse_by_product<Product::Right>, start, false);
  expect_races(reverse_by_product<Product::OverwrittenEarly>, start, true);
}

// ---- indices out of bounds: seen by AddressSanitizer, in the debug build ---------------------
#ifdef __SANITIZE_ADDRESS__

__global__ void beyond_static(float* out, const float* inp) {
  __shared__ float x[kN];
  float* p = x + threadIdx.x;
  p[1] = inp[threadIdx.x];
  __syncthreads();
  out[threadIdx.x] = x[threadIdx.x];
}
__global__ void beyond_dynamic(float* out, const float* inp) {
  float* x = cuda_on_cpu::dynamic_shared<float>();
  x[threadIdx.x + 1] = inp[threadIdx.x];
  __syncthreads();
  out[threadIdx.x] = x[threadIdx.x];
}
__global__ void beyond_output(float* out, const float* inp) { out[threadIdx.x + 1] = inp[0]; }
__global__ void beyond_input(float* out, const float* inp) {
  out[threadIdx.x] = inp[threadIdx.x + 1];
}

TEST_F(Faults, OutOfBounds) {
  const Start start{.threads = kN};
  const Start dynamic{.threads = kN, .shared_bytes = kN * sizeof(float)};
  EXPECT_DEATH(run(beyond_static, start), "global-buffer-overflow|insufficient space");
  EXPECT_DEATH(run(beyond_dynamic, dynamic), "heap-buffer-overflow");
  EXPECT_DEATH(run(beyond_output, start), "heap-buffer-overflow");
  EXPECT_DEATH(run(beyond_input, start), "heap-buffer-overflow");
}

#endif

}  // namespace
}  // namespace ladder::test
