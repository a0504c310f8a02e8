// What forward and backward of attention share: the blocks into which a piece of a sequence is cut,
// the scratch of a head, and the copying of rows into scratch and back.
#pragma once

#include <bit>
#include <cmath>
#include <utility>
#include <vector>

#include "kernels/attention_rows.h"
#include "kernels/cpu/attention_blocks.h"
#include "kernels/cpu/lanes.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/transpose.h"
#include "kernels/shapes.h"

namespace ladder::cpu {

/// Up to kBlock neighboring tokens of one chunk.
struct TokenBlock {
  Range tokens;
  int64_t chunk;   ///< counted among the key_chunks of the sequence
  bool last;       ///< it ends its chunk
  int64_t row;     ///< of the first token, in the tensors of the piece
  int64_t padded;  ///< the same row if each block is padded to whole tiles

  int64_t rows() const { return tokens.size(); }
  Range range() const { return {row, row + rows()}; }
  /// Whether the queries of this block see keys of `keys`. Two blocks are the same tokens, or share
  /// none.
  bool sees(const TokenBlock& keys) const { return keys.tokens.begin <= tokens.begin; }
};

/// The blocks of some runs of tokens, ascending. The sequence has T tokens. Blocks are counted from
/// the first token of each chunk; a run that ends inside a block cuts it.
template <size_t N>
std::vector<TokenBlock> blocks_of(const std::array<TokenRun, N>& runs, int64_t T) {
  std::vector<TokenBlock> blocks;
  int64_t padded = 0;
  for (const TokenRun& run : runs)
    for (int64_t c = 0; c < key_chunks(T); ++c) {
      const Range all = leaf(c, key_chunks(T), T);
      for (int64_t at = all.begin; at < all.end; at += kBlock) {
        const int64_t begin = std::max(at, run.tokens.begin);
        const int64_t end = std::min({at + kBlock, all.end, run.tokens.end});
        if (begin >= end) continue;
        blocks.push_back({.tokens = {begin, end},
                          .chunk = c,
                          .last = end == all.end,
                          .row = run.row + begin - run.tokens.begin,
                          .padded = padded});
        padded += tiled_rows(end - begin);
      }
    }
  return blocks;
}

/// A piece of attention, cut into blocks. A whole sequence is a piece, too.
struct Piece {
  Extents s;
  AttentionColumns at;
  int64_t T;  ///< tokens of the sequence
  std::vector<TokenBlock> queries, keys;
  bool cached = false;  ///< there may be far more keys than queries

  /// `together`: queries, keys and values share a tensor (AttentionColumns).
  Piece(const Extents& shape, const AttentionPositions& place, bool together)
      : s(shape),
        at(together ? AttentionColumns::together(s.NKV, r()) : AttentionColumns::apart(s.NKV, r())),
        T(place.T),
        queries(blocks_of(query_runs(place, s.Tq), T)),
        keys(blocks_of(std::array{TokenRun{{place.keys, place.keys + s.Tk}, 0}}, T)) {}
  /// A whole sequence, or a document.
  Piece(const Ctx& ctx, const Extents& whole)
      : Piece(piece_of(whole), whole_sequence(whole.T, ctx.documents.chunk_length), true) {}
  /// Queries from token `first` on, in qkv; keys and values in a cache.
  Piece(const Extents& shape, const CachedPlace& place)
      : s(piece_of(shape, place)),
        at(AttentionColumns::cached(s.NKV, r())),
        T(place.T),
        queries(blocks_of(std::array{TokenRun{{place.first, s.Tk}, 0}}, T)),
        keys(blocks_of(std::array{TokenRun{{0, s.Tk}, 0}}, T)),
        cached(true) {}

  int64_t r() const { return s.NH / s.NKV; }
  float scale() const { return 1.0f / std::sqrt(static_cast<float>(s.HS)); }
  HeadColumns of_out() const { return {s.NKV, r(), 0}; }
};

/// How many rows the blocks take if each is padded to whole tiles.
inline int64_t padded_rows(const std::vector<TokenBlock>& blocks) {
  return blocks.empty() ? 0 : blocks.back().padded + tiled_rows(blocks.back().rows());
}

/// A sum over leaves is a binary counter, as TreeSum is, but of rows in scratch: each level is a
/// buffer. After `count` leaves, the next leaf is computed in this level, which is free.
inline int next_level(int64_t count) { return std::countr_one(static_cast<uint64_t>(count)); }
/// How many levels a counter of up to `count` leaves has.
inline int64_t levels(int64_t count) { return std::bit_width(static_cast<uint64_t>(count)); }

/// Calls join(level), ascending, for the levels that are added to the next leaf: those that carry.
/// After the `last` leaf these are all levels that hold a sum.
template <class F>
void for_joined(int64_t count, bool last, F&& join) {
  const int next = next_level(count);
  for (int level = 0; count >> level != 0; ++level)
    if ((count >> level & 1) && (level < next || last)) join(level);
}

/// The distance between rows of a block with HS columns. It is no multiple of 512 bytes, because
/// then the rows would compete for a few places of the L1 cache.
inline int64_t row_stride(int64_t HS) {
  const int64_t whole = round_up(HS, kTileCols);
  return whole % 128 == 0 ? whole + kTileCols : whole;
}

/// Hands out one thread's scratch, buffer by buffer.
class Dealer {
 public:
  explicit Dealer(float* base) : base_(base) {}
  float* take(int64_t count) {
    return base_ + std::exchange(used_, used_ + round_up(count, kAlign));
  }
  int64_t used() const { return used_; }

 private:
  float* base_;
  int64_t used_ = 0;
};

/// Calls f(task, room) for task in [0, tasks). Threads share the tasks; each has a Room of its own.
template <class Room, class F>
void for_heads(const Ctx& ctx, const Piece& piece, int64_t tasks, F&& f) {
  const auto room_of = [&](int thread) {
    return Room(Dealer(reinterpret_cast<float*>(scratch_of(ctx, thread).data())), piece);
  };
  const int64_t bytes = room_of(0).floats * static_cast<int64_t>(sizeof(float));
  if (bytes > ctx.scratch.dim(1))
    throw OutOfMemory(fmt::format(
        "attention takes {} bytes of scratch for heads of {} channels, {} tokens and {} query "
        "heads to a key-value head, and there are {}; more heads are smaller ones",
        bytes, piece.s.HS, piece.s.Tk, piece.r(), ctx.scratch.dim(1)));
  const int64_t threads = std::min<int64_t>(ctx.threads, tasks);
  on_threads(ctx, [&](int thread) {
    if (thread >= threads) return;
    const Room room = room_of(thread);
    const Range mine = leaf(thread, threads, tasks);
    for (int64_t task = mine.begin; task < mine.end; ++task) f(task, room);
  });
}

/// Copies HS columns of some rows into scratch, padded with zeros to whole tiles.
template <class T>
void widen_rows(float* to, int64_t stride, HeadRows<const T> from, Range rows, int64_t HS) {
  for (int64_t row = rows.begin; row < rows.end; ++row, to += stride) {
    for_vectors(0, HS, [&](int64_t i, auto io) { store(io.load(from[row] + i), to + i); });
    std::fill(to + round_up(HS, kLanes), to + stride, 0.0f);
  }
  std::fill(to, to + (tiled_rows(rows.size()) - rows.size()) * stride, 0.0f);
}

/// Copies FP32 rows back, rounded to T. The i-th of `rows` is multiplied by factor(i).
template <class T, class F>
void narrow_rows(HeadRows<T> to, Range rows, const float* from, int64_t stride, int64_t HS,
                 F&& factor) {
  for (int64_t i = 0; i < rows.size(); ++i, from += stride) {
    const Vec by = broadcast(factor(i));
    T* row = to[rows.begin + i];
    for_vectors(0, HS,
                [&](int64_t d, auto io) { io.store(hn::Mul(io.load(from + d), by), row + d); });
  }
}

/// Columns that a block of keys (or values) takes when it is transposed: whole tiles.
inline int64_t across(int64_t keys) { return round_up(keys, int64_t{32}); }

/// Transposes a block of keys (or values) to (HS, across(keys)). Columns past the end repeat the
/// last one; no result that comes of them is used.
template <class T>
void transpose_rows(float* to, HeadRows<const T> from, const TokenBlock& keys, int64_t HS) {
  const Range rows = keys.range();
  switch (across(rows.size())) {
    case 32:
      return pack_transposed<32, T>(to, from.first, from.stride, rows.begin, rows.end, {0, HS});
    case 64:
      return pack_transposed<64, T>(to, from.first, from.stride, rows.begin, rows.end, {0, HS});
    default:
      return pack_transposed<kBlock, T>(to, from.first, from.stride, rows.begin, rows.end, {0, HS});
  }
}
static_assert(kBlock == 96 && 32 % kTileCols == 0);

/// How many of `keys` keys row `row` of a block of queries sees.
inline int64_t seen(int64_t row, int64_t keys, bool diagonal) { return diagonal ? row + 1 : keys; }

}  // namespace ladder::cpu
