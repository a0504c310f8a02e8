// A panel that tiles pack on the way is equal to one that is packed at once.
#include <vector>

#include "kernels/cpu/gemm/beside.h"
#include "tests/kernels/testing.h"

namespace ladder::test {
namespace {

constexpr int64_t kSteps = 64, kFirst = 3;  ///< steps of the panel, its first k
constexpr int64_t kSecond = 200;            ///< where another run of k begins
constexpr int64_t kTimes = 7;
constexpr float kUntouched = 12345;

/// Runs of k that make up the panel: one, or two that are not neighbors.
template <int64_t Step>
std::vector<KRun> runs(int64_t count) {
  const int64_t first = count == 1 ? kSteps : 11;
  std::vector<KRun> all{{kFirst, kFirst + first * Step}};
  if (count == 2) all.push_back({kSecond, kSecond + (kSteps - first) * Step});
  return all;
}

/// What `Next` makes of kNr rows of f in kTimes calls of some(). One more call must change nothing.
template <class Next, class T>
std::vector<float> on_the_way(const Factor& f, int64_t stride, std::span<const KRun> k) {
  std::vector<float> panel(static_cast<size_t>(kNr * kSteps + kLanes), kUntouched);
  Next next(panel.data(), static_cast<const T*>(f.ptr), stride, k, kTimes);
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
std::vector<float> at_once(const Factor& f, std::span<const KRun> k) {
  std::vector<float> panel(static_cast<size_t>(kNr * kSteps + kLanes));
  float* out = panel.data();
  for (const KRun& run : k) {
    pack<kNr, Step>(out, panel_size(kNr, kSteps), f, {0, kNr}, kNr, {run.begin, run.end});
    out += run.size() / Step * kNr;
  }
  panel.resize(static_cast<size_t>(kNr * kSteps));
  return panel;
}

/// Words of Step values of T.
template <int64_t Step, class T>
void expect_the_same(Dtype dtype) {
  Sandbox box{cpu_kernels(), dtype};
  const int64_t K = kSecond + kSteps * Step + 2;
  const Tensor along_k = box.random(dtype, {kNr, K}), across_k = box.random(dtype, {K, kNr});
  const Factor rows{.ptr = along_k.ptr, .dtype = dtype, .stride_i = K, .stride_k = 1};
  const Factor columns{.ptr = across_k.ptr, .dtype = dtype, .stride_i = 1, .stride_k = kNr};
  const std::vector<KRun> one = runs<Step>(1), two = runs<Step>(2);
  const auto transposed = on_the_way<Transposing<Step, T>, T>(rows, K, one);
  EXPECT_EQ(transposed, at_once<Step>(rows, one));
  for (const std::vector<KRun>& k : {one, two}) {
    const auto copied = on_the_way<Packing<Step, T>, T>(columns, kNr, k);
    EXPECT_EQ(copied, at_once<Step>(columns, k));
  }
}

TEST(CpuPack, OnTheWayAsAtOnce) { expect_the_same<1, float>(Dtype::F32); }

TEST(CpuPack, PairsOnTheWayAsAtOnce) { expect_the_same<2, Bf16>(Dtype::BF16); }

}  // namespace
}  // namespace ladder::test
