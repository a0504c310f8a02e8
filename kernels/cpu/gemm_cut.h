// How the sum over K of a product is cut: leaves as the rule has them, and chunks of K as the
// caches want them. Lengths are counted in steps: what the registers take at a time, `step` values
// of k.
#pragma once

#include <array>
#include <bit>

#include "kernels/check.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/vec.h"

namespace ladder {

/// Longest chunk of K, in steps. With AVX2 a panel of B (kDepth x kNr words) then stays in L1 while
/// A's panels pass; the larger L2 of machines with AVX-512 feeds both, and the fewer the chunks,
/// the fewer sums wait in memory.
constexpr int64_t kDepth = kLanes == 16 ? 768 : 384;
/// But all of K if it is no longer than this: then no sum waits in memory between chunks.
constexpr int64_t longest_uncut(int64_t most) { return most / 3 * 4; }

/// The part of a leaf that lies in one chunk.
struct Segment {
  int64_t begin, end;  ///< its values of k
  int64_t steps;       ///< the last one is not full where end - begin is no multiple of a step
  uint64_t joins;  ///< bit l: the sum on level l of the tree is joined to this one, lowest first
  int slot;        ///< where the sum goes: its level, or Cut::parking() if the leaf goes on
  bool resumes;    ///< the leaf began in an earlier chunk: its sum so far is parked
  bool last;       ///< nothing follows: the sum goes to C
};

struct Chunk {
  Range k;
  int64_t steps = 0;
  bool gapless = true;  ///< all steps but the last are full: leaves need not be told apart
  int count = 0;
  /// The first `count` of them. The others are not even initialised: they would fill L1.
  std::array<Segment, longest_uncut(kDepth)> segments;
};

/// How K is cut into chunks, and in which slots the sums wait.
class Cut {
 public:
  /// @param step values of k in a step
  /// @param most longest chunk in steps, but for a K that is longest_uncut(most) at most
  Cut(int64_t K, int64_t leaves, int64_t step, int64_t most) : K_(K), leaves_(leaves), step_(step) {
    const int64_t longest = std::max<int64_t>(1, steps(ceil_div(K, leaves)));
    if (leaves * longest > most && leaves * longest <= longest_uncut(most))
      most = longest_uncut(most);
    while (run_ < leaves && std::min(2 * run_, leaves) * longest <= most) run_ *= 2;
    pieces_ = ceil_div(longest, most);
    depth_ = std::min(run_, leaves_) * ceil_div(longest, pieces_);
  }

  /// No chunk has more steps.
  int64_t depth() const { return depth_; }

  int64_t chunks() const { return run_ > 1 ? ceil_div(leaves_, run_) : leaves_ * pieces_; }

  Chunk chunk(int64_t i) const {
    Chunk chunk;
    if (run_ == 1) {  // piece i % pieces_ of one leaf
      const Range whole = leaf(i / pieces_, leaves_, K_);
      const Range part = part_of(i % pieces_, pieces_, whole.size(), step_);
      push(chunk, i / pieces_, i % pieces_, {whole.begin + part.begin, whole.begin + part.end});
    } else {
      const int64_t first = i * run_;
      for (int64_t which = first; which < std::min(leaves_, first + run_); ++which)
        push(chunk, which, 0, leaf(which, leaves_, K_));
    }
    return chunk;
  }

  /// Levels whose sums never outlive a chunk.
  int local_levels() const { return chunks() == 1 ? parking() : std::countr_zero(bits(run_)); }
  /// The slot after those of the levels: for a leaf that goes on in the next chunk.
  int parking() const { return std::bit_width(bits(leaves_ - 1)); }
  int slots() const { return parking() + (pieces_ > 1 ? 1 : 0); }

 private:
  static uint64_t bits(int64_t n) { return static_cast<uint64_t>(n); }
  int64_t steps(int64_t length) const { return ceil_div(length, step_); }

  void push(Chunk& chunk, int64_t which, int64_t piece, Range k) const {
    const bool ends = piece + 1 == pieces_;
    const bool last = ends && which + 1 == leaves_;
    // As a binary counter: leaf `which` completes the levels of its trailing ones. The last leaf
    // is joined with all that is left: the ones of its index.
    const int level = std::countr_one(bits(which));
    const uint64_t completed = (uint64_t{1} << level) - 1;
    if (chunk.count == 0)
      chunk.k = k;
    else if (chunk.k.size() % step_ != 0)
      chunk.gapless = false;
    chunk.k.end = k.end;
    chunk.steps += steps(k.size());
    chunk.segments[static_cast<size_t>(chunk.count++)] = {
        .begin = k.begin,
        .end = k.end,
        .steps = steps(k.size()),
        .joins = last ? bits(which) : (ends ? completed : 0),
        .slot = ends ? level : parking(),
        .resumes = piece > 0,
        .last = last};
  }

  int64_t K_, leaves_, step_, depth_;
  int64_t run_ = 1;     ///< whole leaves of a chunk: a power of two
  int64_t pieces_ = 1;  ///< pieces of a leaf, where a leaf is longer than a chunk
};

}  // namespace ladder
