// The cache: keys and values of the tokens that a text has so far, in every block.
//
// A token's keys and values do not change when the text grows, because attention is causal. So they
// are computed once. Each text has a place; a place has L tables with a row for each token:
//
//   row of token t in block l:   k of group 0, v of group 0, k of group 1, v of group 1, ...
//
// That is 2 L NKV HS numbers a token: groups of query heads share a key and a value head, so it is
// NKV, not NH. Keys are turned by their absolute position (RoPE) before they are written. A text
// that ends gives its place to the next one, whose rows are written over the old ones. Rows behind
// the last token are never read: they hold what an earlier text has left, or nothing.
#pragma once

#include <cstdint>

#include "common/model/config.h"
#include "kernels/arena.h"
#include "kernels/context.h"
#include "kernels/kernels.h"

namespace ladder {

class KvCache {
 public:
  /// @param rows tokens that a text can have
  KvCache(Arena& arena, const GptConfig& config, int64_t places, int64_t rows, Dtype dtype)
      : NH_(config.heads), NKV_(config.groups()), HS_(config.head_size()) {
    all_ = arena.alloc(Mem::Activation, "cache", dtype,
                       {places * config.layers, rows, 2 * NKV_ * HS_});
    layers_ = config.layers;
  }
  static int64_t bytes(const GptConfig& config, int64_t places, int64_t rows, Dtype dtype) {
    return size_of(dtype) * places * rows * 2 * config.layers * config.groups() *
           config.head_size();
  }

  int64_t places() const { return all_.dim(0) / layers_; }
  /// The rows of block l: (rows, 2*NKV*HS).
  Tensor rows(int64_t place, int64_t l) const {
    return all_.slice(place * layers_ + l, 1).view({all_.dim(1), all_.dim(2)});
  }

  /// Keys and values of tokens first, first + 1, ... of a text, from qkv (m,(NH+2*NKV)*HS).
  void append(const Ctx& ctx, int64_t place, int64_t l, int64_t first, Tensor qkv) const {
    const int64_t m = qkv.dim(0), r = NH_ / NKV_;
    ctx.kernels->copy_columns(ctx, rows(place, l).slice(first, m).view({m, NKV_, 2 * HS_}), 0,
                              qkv.view({m, NKV_, (r + 2) * HS_}), r * HS_, 2 * HS_);
  }
  /// The first `count` tokens of the text at `from` become those at `to`.
  void copy(const Ctx& ctx, int64_t to, int64_t from, int64_t count) const {
    const Shape one_group{count, 1, all_.dim(2)};
    for (int64_t l = 0; count > 0 && l < layers_; ++l)
      ctx.kernels->copy_columns(ctx, rows(to, l).first(count).view(one_group), 0,
                                rows(from, l).first(count).view(one_group), 0, all_.dim(2));
  }

 private:
  int64_t NH_, NKV_, HS_;
  int64_t layers_ = 0;
  Tensor all_;  ///< (places L, rows, 2*NKV*HS)
};

}  // namespace ladder
