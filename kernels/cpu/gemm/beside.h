// What a tile does beside its products, for later tiles or for its own end. It does a little at a
// time: much at once would keep its own loads waiting.
#pragma once

#include <algorithm>
#include <array>

#include "kernels/cpu/gemm/finish.h"
#include "kernels/cpu/gemm/pack.h"
#include "kernels/cpu/gemm/prefetch.h"
#include "kernels/cpu/gemm/registers.h"
#include "kernels/cpu/pairs.h"

namespace ladder {

/// Packs the next panel of B if its rows are neighbors in memory: a few steps at a time, while the
/// tiles before it wait for their products anyway.
template <int64_t Step, class T>
class Packing {
 public:
  /// Steps of a tile between two calls of some(). With fewer steps the calls cost more. With more
  /// steps packing comes in bursts, which slow the tile down.
  static constexpr int64_t kPiece = kLanes == 16 ? 64 : 128;
  /// @param base  where k is 0
  /// @param k     full steps only
  /// @param times how often some() is called
  Packing(float* panel, const T* base, int64_t stride, std::span<const KRun> k, int64_t times)
      : panel_(panel), base_(base), stride_(stride), later_(k) {
    for (const KRun& run : k) each_ += run.size() / Step;
    each_ = ceil_div(each_, times);
    enter_next();
  }

  HWY_INLINE void some() {
    int64_t n = each_;
    while (n > 0 && left_ > 0) {
      const int64_t here = std::min(n, left_);
      pack_steps(here);
      n -= here;
      if (left_ == 0) enter_next();
    }
  }

 private:
  static constexpr int64_t kLater = 4;  ///< steps from asking for memory to reading it
  static constexpr int64_t kLine = 64 / sizeof(T);

  void enter_next() {
    if (later_.empty()) return;
    from_ = base_ + later_.front().begin * stride_;
    left_ = later_.front().size() / Step;
    later_ = later_.subspan(1);
  }
  HWY_INLINE void pack_steps(int64_t steps) {
    left_ -= steps;
    for (; steps > 0; --steps) {
      for (int64_t k = 0; k < Step; ++k) {
        const T* later = from_ + (kLater * Step + k) * stride_;
        for (int64_t i = 0; i < kNr; i += kLine) __builtin_prefetch(later + i);
      }
      store(word(from_), panel_);
      store(word(from_ + kLanes), panel_ + kLanes);
      panel_ += kNr;
      from_ += Step * stride_;
    }
  }
  HWY_INLINE Vec word(const T* at) const {
    const Vec first = load(at);
    if constexpr (Step == 1) return first;
    return join_pairs(kVec, first, load(at + stride_));
  }

  float* panel_;
  const T *base_, *from_ = nullptr;
  int64_t stride_, left_ = 0, each_ = 0;  ///< steps left of this run, steps of some()
  std::span<const KRun> later_;           ///< the runs after it
};

/// Packs the next panel of B if k is contiguous: it transposes four rows by one vector at a time.
template <int64_t Step, class T>
class Transposing {
 public:
  static constexpr int64_t kPiece = Packing<Step, T>::kPiece;
  /// Parameters as for Packing, but rows are `stride` apart. k is one run, of a multiple of kLanes
  /// steps.
  Transposing(float* panel, const T* base, int64_t stride, std::span<const KRun> k, int64_t times)
      : panel_(panel),
        left_(k.front().size() / Step / kLanes * kGroups),
        each_(ceil_div(left_, times)) {
    for (int64_t i = 0; i < kNr; ++i)
      rows_[static_cast<size_t>(i / 4)][static_cast<size_t>(i % 4)] =
          reinterpret_cast<const Word*>(base + i * stride + k.front().begin);
  }

  HWY_INLINE void some() {
    for (int64_t n = std::min(each_, left_); n > 0; --n) {
      const auto& rows = rows_[static_cast<size_t>(group_)];
      // Into L2: much passes through L1 before the next vector of these rows is used.
      for (const Word* row : rows) __builtin_prefetch(row + word_ + kLanes, 0, 2);
      transpose(panel_ + word_ * kNr + group_ * 4, kNr, rows, word_);
      if (++group_ == kGroups) group_ = 0, word_ += kLanes;
      --left_;
    }
  }

 private:
  using Word = Unit<Step, T>;
  static constexpr int64_t kGroups = kNr / 4;

  float* panel_;
  std::array<FourRows<Word>, kGroups> rows_;
  int64_t word_ = 0, group_ = 0, left_, each_;
};

/// Sends a finished tile past the caches, a few rows at a time. All rows at once would fill the few
/// buffers in which lines wait for memory, and the next tile's loads need these buffers.
class Outbox {
 public:
  explicit Outbox(float* tile) : tile_(tile) {}

  /// Finishes the sums now. Only copying is left, for the time of the next tile's products.
  template <size_t Rows>
  HWY_INLINE void put(Acc<Rows>& acc, const Finish<float>& finish) {
    rest();
    for_acc(acc, [&](Vec v, int64_t i, int64_t col) {
      hn::Store(finish.finished(v, i, col, Whole{}), kVec, tile_ + i * kNr + col);
    });
    from_ = tile_;
    to_ = finish.at(0, 0);
    stride_ = finish.at(1, 0) - to_;
    left_ = Rows;
  }
  HWY_INLINE void some() { send(kEach); }
  void rest() { send(left_); }

 private:
  static constexpr int64_t kEach = 3;
  HWY_INLINE void send(int64_t rows) {
    for (int64_t n = std::min(rows, left_); n > 0; --n) {
      PastCaches{}.store(load(from_), to_);
      PastCaches{}.store(load(from_ + kLanes), to_ + kLanes);
      from_ += kNr;
      to_ += stride_;
      --left_;
    }
  }

  float* tile_;                  ///< (kMr, kNr)
  const float* from_ = nullptr;  ///< its first row that is not sent yet
  float* to_ = nullptr;          ///< where that row goes
  int64_t stride_ = 0, left_ = 0;
};

/// Whether tiles prepare and send C on the way. With the 16 registers of AVX2 it costs more than it
/// gains; with NEON it has not been measured.
constexpr bool kBesideC = kLanes == 16;

/// All that a tile does beside its products, before each Next::kPiece steps. Next is Packing,
/// Transposing or Prefetch: it packs the next panel of B, or asks for its memory.
template <class Next>
struct Beside {
  Next& next;
  Prefetch c;  ///< where the tiles that end now will be written
  Outbox& outbox;
  HWY_INLINE void some() {
    next.some();
    if constexpr (kBesideC) c.some(), outbox.some();
  }
};

}  // namespace ladder
