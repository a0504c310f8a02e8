// Panels that tiles pack on the way hold what those hold that are packed at once.
#include <vector>

#include "kernels/cpu/gemm_beside.h"
#include "tests/kernels/testing.h"

namespace ladder::test {
namespace {

constexpr int64_t kSteps = 64, kFirst = 3;  ///< steps of the panel, its first k
constexpr int64_t kTimes = 7;
constexpr float kUntouched = 12345;

/// What `Next` makes of kNr rows of f in kTimes calls, and some() more, which must change nothing.
template <class Next, class T>
std::vector<float> on_the_way(const Factor& f, int64_t stride) {
  std::vector<float> panel(static_cast<size_t>(kNr * kSteps + kLanes), kUntouched);
  const T* from = static_cast<const T*>(f.ptr) + kFirst * f.stride_k;
  Next next(panel.data(), from, stride, kSteps, kTimes);
  for (int64_t i = 0; i < kTimes; ++i) next.some();
  for (int64_t i = kNr * kSteps; i < std::ssize(panel); ++i)
    EXPECT_EQ(panel[static_cast<size_t>(i)], kUntouched);
  panel.resize(static_cast<size_t>(kNr * kSteps));
  const std::vector<float> done = panel;
  next.some();
  EXPECT_EQ(panel, done);
  return panel;
}

template <int64_t Step>
std::vector<float> at_once(const Factor& f) {
  std::vector<float> panel(static_cast<size_t>(kNr * kSteps + kLanes));
  pack<kNr, Step>(panel.data(), panel_size(kNr, kSteps), f, {0, kNr}, kNr,
                  {kFirst, kFirst + kSteps * Step});
  panel.resize(static_cast<size_t>(kNr * kSteps));
  return panel;
}

/// Words of Step values of T.
template <int64_t Step, class T>
void expect_the_same(Dtype dtype) {
  Sandbox box{cpu_kernels(), dtype};
  const int64_t K = kFirst + kSteps * Step + 2;
  const Tensor along_k = box.random(dtype, {kNr, K}), across_k = box.random(dtype, {K, kNr});
  const Factor rows{.ptr = along_k.ptr, .dtype = dtype, .stride_i = K, .stride_k = 1};
  const Factor columns{.ptr = across_k.ptr, .dtype = dtype, .stride_i = 1, .stride_k = kNr};
  const auto transposed = on_the_way<Transposing<Step, T>, T>(rows, K);
  EXPECT_EQ(transposed, at_once<Step>(rows));
  const auto copied = on_the_way<Packing<Step, T>, T>(columns, kNr);
  EXPECT_EQ(copied, at_once<Step>(columns));
}

TEST(CpuPack, OnTheWayAsAtOnce) { expect_the_same<1, float>(Dtype::F32); }

TEST(CpuPack, PairsOnTheWayAsAtOnce) { expect_the_same<2, Bf16>(Dtype::BF16); }

}  // namespace
}  // namespace ladder::test
