// The instructions of ptx.h: a product of small integers, which is exact whatever the order of
// its sums, by way of cp.async, ldmatrix and mma.
#include <cstdlib>

#include "kernels/cuda/convert.h"
#include "launch.h"
#include "ptx.h"
#include "tests/kernels/cuda/device_under_test.h"
#include "tests/kernels/testing.h"

namespace ladder::test {
namespace {

constexpr int kM = 16, kN = 8, kK = 16;

/// d = d + a b by one warp. d (kM,kN); a (kM,kK); b (kK,kN), or (kN,kK) if kTransposed
template <bool kTransposed, class T>
__global__ void multiply(float* d, const T* a, const T* b) {
  alignas(16) __shared__ T A[kM * kK], B[kK * kN];
  const int lane = static_cast<int>(threadIdx.x);
  dev::cp_async_16(A + 8 * lane, a + 8 * lane);
  if (lane < 16) dev::cp_async_16(B + 8 * lane, b + 8 * lane);
  dev::cp_async_commit();
  dev::cp_async_wait<0>();
  __syncthreads();

  // Lane 8 i + j brings row j of matrix i: those of A lie as a[0..3] are numbered.
  uint32_t x[4], y[4];
  dev::ldmatrix_x4(x, A + (lane % 16) * kK + lane / 16 * 8);
  if constexpr (kTransposed)
    dev::ldmatrix_x4(y, B + (lane % 8) * kK + lane / 8 % 2 * 8);
  else
    dev::ldmatrix_x4_trans(y, B + (lane % 16) * kN);

  const int g = lane / 4, t = lane % 4;
  float sum[4];
  for (int i = 0; i < 4; ++i) sum[i] = d[(g + i / 2 * 8) * kN + 2 * t + i % 2];
  dev::mma_16x8x16<T>(sum, x, {y[0], y[1]});
  for (int i = 0; i < 4; ++i) d[(g + i / 2 * 8) * kN + 2 * t + i % 2] = sum[i];
}

/// out = inp by one warp: ldmatrix_x4_trans of four matrices, each written back turned around.
/// out, inp (32,8)
template <class T>
__global__ void turn(T* out, const T* inp) {
  alignas(16) __shared__ T X[32 * 8];
  const int lane = static_cast<int>(threadIdx.x);
  dev::cp_async_16(X + 8 * lane, inp + 8 * lane, lane != 31);
  dev::cp_async_commit();
  dev::cp_async_wait<0>();
  __syncwarp();
  uint32_t r[4];
  dev::ldmatrix_x4_trans(r, X + 8 * lane);
  const int g = lane / 4, t = lane % 4;
  for (int i = 0; i < 4; ++i) {
    T pair[2];
    std::memcpy(pair, &r[i], sizeof(pair));
    for (int half = 0; half < 2; ++half) out[(8 * i + 2 * t + half) * 8 + g] = pair[half];
  }
}

__global__ void fault() { __trap(); }

/// A launch that fails is told by the wait at a test's end. In a process of its own, since every
/// later call fails, too.
TEST(DeviceFaultDeathTest, IsToldByTheNextWait) {
  if (dev::device_count() == 0) GTEST_SKIP() << "no GPU here";
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  constexpr int kTold = 3;
  const auto run = [] {
    dev::launch(dut().ctx, fault, {.x = 1}, 1, 0);
    try {
      dut().clear();
    } catch (const CheckError&) {
      std::_Exit(kTold);
    }
  };
  EXPECT_EXIT(run(), ::testing::ExitedWithCode(kTold), "");
}

class Ptx : public DeviceTest {
 protected:
  Sandbox host{ref_kernels()};

  /// Integers from -8 to 7.
  Tensor integers(Dtype dtype, Shape shape) {
    const Tensor x = host.random(dtype, shape);
    for (int64_t i = 0; i < x.size(); ++i) set(x, i, std::floor(8 * at(x, i)));
    return x;
  }

  template <bool kTransposed, class T>
  void expect_product(Dtype dtype) {
    const Tensor a = integers(dtype, {kM, kK}), d = integers(Dtype::F32, {kM, kN});
    const Tensor b = integers(dtype, kTransposed ? Shape{kN, kK} : Shape{kK, kN});
    const Tensor sum = dut().upload(d);
    dev::launch(dut().ctx, multiply<kTransposed, T>, Grid{}, 32, 0, dev::device_data<float>(sum),
                dev::device_data<T>(dut().upload(a)), dev::device_data<T>(dut().upload(b)));
    const Tensor got = dut().download(sum);
    for (int m = 0; m < kM; ++m)
      for (int n = 0; n < kN; ++n) {
        double want = at(d, m * kN + n);
        for (int k = 0; k < kK; ++k)
          want += at(a, m * kK + k) * at(b, kTransposed ? n * kK + k : k * kN + n);
        EXPECT_EQ(at(got, m * kN + n), want) << m << " " << n;
      }
  }
};

TEST_F(Ptx, Product) {
  expect_product<false, __nv_bfloat16>(Dtype::BF16);
  expect_product<true, __nv_bfloat16>(Dtype::BF16);
  expect_product<false, __half>(Dtype::F16);
  expect_product<true, __half>(Dtype::F16);
}

TEST_F(Ptx, TransposedLoadAndCopyOfZeros) {
  const Tensor inp = integers(Dtype::BF16, {32, 8}), out = dut().empty(Dtype::BF16, {32, 8});
  dev::launch(dut().ctx, turn<__nv_bfloat16>, Grid{}, 32, 0, dev::device_data<__nv_bfloat16>(out),
              dev::device_data<__nv_bfloat16>(dut().upload(inp)));
  const Tensor got = dut().download(out);
  for (int i = 0; i < 32 * 8; ++i) EXPECT_EQ(at(got, i), i < 31 * 8 ? at(inp, i) : 0) << i;
}

}  // namespace
}  // namespace ladder::test
