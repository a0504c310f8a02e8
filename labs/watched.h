// What the checks of CUDA labs share: a kernel runs on the stand-in for a GPU with several orders
// of its threads, and each of its accesses is watched.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <cuda_runtime.h>
#include <functional>
#include <initializer_list>
#include <limits>
#include <string>
#include <vector>

#include "kernels/check.h"
#include "kernels/cuda/on_cpu/block.h"
#include "kernels/cuda/on_cpu/watch.h"
#include "labs/check.h"

namespace ladder::lab {

constexpr const char *kNoRace = "none, and all barriers are met", *kNear = "within the bound",
                     *kSame = "the same bits for each order of threads";
constexpr double kUnit = 0x1p-24;  ///< what rounding to FP32 changes at most, of a number

/// Whether a kernel has read or written behind the end of its numbers.
inline bool touched_behind = false;

/// Numbers in the memory of the device. Those behind them are NaN, and nobody may touch them.
template <class T>
class OnDevice {
 public:
  explicit OnDevice(int64_t n) : n_(static_cast<size_t>(n)) {
    void* memory = nullptr;
    CHECK(cudaMalloc(&memory, (n_ + kBehind) * sizeof(T)) == cudaSuccess, "no memory");
    data = static_cast<T*>(memory);
    on_cpu::forbid(data + n_, kBehind * sizeof(T));
  }
  explicit OnDevice(const std::vector<T>& values) : OnDevice(static_cast<int64_t>(values.size())) {
    std::ranges::copy(values, data);
  }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;
  ~OnDevice() {
    on_cpu::forbid(data + n_, 0);
    cudaFree(data);
  }

  /// All of it NaN, as a device has it where nobody has written.
  void clear() { std::fill_n(data, n_ + kBehind, std::numeric_limits<T>::quiet_NaN()); }
  std::vector<T> values() const { return {data, data + n_}; }

  T* data = nullptr;

 private:
  static constexpr size_t kBehind = 64;
  size_t n_;
};

/// How a kernel is started, and what it writes.
struct Start {
  Grid grid;
  int threads;
  std::initializer_list<OnDevice<float>*> outputs;
};

/// Runs a kernel with three orders of its threads, and writes rows of `races` and `same`.
/// @returns what it has moved with the first order
inline on_cpu::Watched watch(Sheet& sheet, const Start& start, const std::function<void()>& kernel,
                             on_cpu::Where where = on_cpu::Where::current()) {
  on_cpu::Watched moved;
  std::string races = kNoRace, same = kSame;
  std::vector<std::vector<float>> first;
  touched_behind = false;
  for (const uint64_t order : {1, 2, 3}) {
    for (OnDevice<float>* x : start.outputs) x->clear();
    on_cpu::set_seed(3 * sheet.seed() + order);
    on_cpu::take_watched();
    on_cpu::run_grid(where, start.grid, start.threads, 0, kernel);
    const on_cpu::Watched seen = on_cpu::take_watched();
    if (seen.race_count > 0 && races == kNoRace) races = seen.races.at(0);
    if (seen.float_atomics > 0) same = "sums of floats by atomics, in an order that nobody knows";
    if (seen.forbidden > 0) touched_behind = true;
    if (order == 1) moved = seen;
    for (size_t i = 0; const OnDevice<float>* x : start.outputs) {
      if (order == 1) first.push_back(x->values());
      const std::vector<float> now = x->values();
      if (std::memcmp(now.data(), first[i].data(), now.size() * sizeof(float)) != 0)
        same = "other bits with another order of threads";
      ++i;
    }
  }
  sheet.text("races", races);
  sheet.text("same", same);
  return moved;
}

/// Whether each number is as near to what is exact as its bound says; or which is not.
inline std::string near(const OnDevice<float>& got, const std::vector<double>& exact,
                        const std::vector<double>& bound) {
  const std::vector<float> values = got.values();
  for (size_t i = 0; i < values.size(); ++i)
    if (!(std::abs(values[i] - exact[i]) <= bound[i]))
      return fmt::format("[{}]: {:.8g} in place of {:.8g}, bound {:.1g}", i, values[i], exact[i],
                         bound[i]);
  return touched_behind ? "something behind the end is read or written" : kNear;
}

/// The rows of each case that must come out.
inline void want_right(Sheet& sheet) {
  sheet.text("races", kNoRace);
  sheet.text("same", kSame);
  sheet.text("values", kNear);
}

}  // namespace ladder::lab
