// Memory of an exchange of tokens: which rows travel between ep ranks that split experts, and what
// has come.
//
// A rank is an origin and an owner. As an origin it routes its own tokens: the B = MBS sequences of
// a micro-batch. As an owner it has E / ep experts. It does for them what chapter 21 does, with the
// ep B sequences of its group; a token that does not come has no row.
//
//   a block keeps                  numbers a token
//                                  origin, of B T tokens       owner, of ep B T tokens
//   logits and scores              2 E                         -
//   weight and choice              2 k                         2 k (have come)
//   row of each choice             -                           k
//   which rows travel: of each     3 w, w = min(k, ep)         3
//     peer, row and from
//   input of experts               -                           C
//
//   and for each of M rows of experts 3 F + C numbers and an index, as in chapter 21. F is the
//   number of hidden channels of an expert.
//
// Any token may choose any expert, so there is memory for the worst case: all tokens of the group
// come, and each takes as many of the E / ep experts as it may. An expert has at most c tokens of a
// sequence: T, or less with --capacity. So  M = ep B min(k T, c E / ep).  Forward and backward
// compute only with the rows that have come.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

#include "chapters/21_moe/experts.h"
#include "common/model/activations.h"
#include "common/model/layout.h"
#include "kernels/arena.h"
#include "kernels/check.h"
#include "kernels/kernels.h"
#include "kernels/narrow.h"

namespace ladder {

/// Sizes of a layer that ep ranks split.
struct ExchangeShape {
  ExpertSizes own;  ///< this rank's experts, and what may come to them: own.B is ep times B
  int64_t B, ep;    ///< B: sequences of a micro-batch (the README's MBS)
  int64_t most;     ///< c, tokens of a sequence that an expert may have
  Dtype dtype;      ///< of activations

  /// @param ranks    ep, the ranks of a group
  /// @param capacity tokens of a sequence that an expert takes; 0: all
  ExchangeShape(const GptConfig& gpt, int64_t micro, int64_t ranks, int64_t capacity, Dtype of)
      : own(gpt, ranks * micro),
        B(micro),
        ep(ranks),
        most(capacity == 0 ? own.T : std::min(own.T, capacity)),
        dtype(of) {
    own.E = div_exact(own.E, ep);
    own.M = own.B * std::min(own.k * own.T, own.E * most);
  }

  int64_t w() const { return std::min(own.k, ep); }           ///< owners of a token, at most
  int64_t sent_rows() const { return B * own.T * w(); }       ///< at most
  int64_t arrived_tokens() const { return own.B * own.T; }    ///< at most
  int64_t columns() const { return std::max(own.C, own.k); }  ///< of a row that travels, at most
};

/// Which rows travel, seen from one end: the splits of an all-to-all-v, and how rows are permuted
/// for it. The kernels see the ranks at the other end as experts.
struct RowMap {
  ExpertRows rows;  ///< sorted by those ranks, then by token
  Tensor peer;      ///< (B,T,w) I32: those ranks of each token, ascending, then kElsewhere

  /// Rows [begins()[i], begins()[i + 1]) are those of rank i.
  std::span<const int32_t> begins() const {
    return {rows.offsets.data<int32_t>(), static_cast<size_t>(rows.offsets.size())};
  }
  std::vector<int32_t> counts() const {
    std::vector<int32_t> each(begins().size());
    std::adjacent_difference(begins().begin(), begins().end(), each.begin());
    return {each.begin() + 1, each.end()};
  }
  /// Rows of other ranks than `me`.
  int64_t others(int me) const { return begins().back() - counts()[static_cast<size_t>(me)]; }
};

/// What one block keeps of an exchange. All blocks share the members after the empty line. Here
/// `own` is this rank's tokens; in ExchangeShape it is this rank's experts.
struct Exchanged {
  Choices own;     ///< as an origin: what the router has chosen
  RowMap sent;     ///< as an origin; peer (B,T,w): the owners of each token
  RowMap arrived;  ///< as an owner; peer (ep B,T,1): the origin of each token that has come
  Choices chosen;  ///< (ep B,T,k), as an owner: its experts, numbered from its first
  Tensor inp;      ///< (ep B,T,C), the tokens that have arrived

  Tensor out;   ///< (ep B,T,C) F32, what an owner sends back: its sums, also in backward
  Tensor dout;  ///< (ep B,T,C), the gradient of the sums, which has arrived
};

/// Memory for one block. `first` is what the first block got, or nothing for the first block
/// itself. All blocks share its Workspace.
inline Exchanged alloc_exchanged(Arena& arena, const ExchangeShape& s, const Exchanged& first) {
  const ExpertSizes& o = s.own;
  const Shape choices{o.B, o.T, o.k}, tokens{o.B, o.T, o.C};
  const auto ids = [&](const char* name, Shape shape) {  // the host reads or writes them, too
    return arena.shared(Mem::Activation, name, Dtype::I32, shape);
  };
  const auto row_map = [&](int64_t sequences, int64_t peers) {
    const Shape shape{sequences, o.T, peers};
    return RowMap{.rows{.offsets = ids("travel.offsets", {s.ep + 1}),
                        .row = ids("travel.row", shape),
                        .from = ids("travel.from", {shape.size()})},
                  .peer = ids("travel.peer", shape)};
  };
  Exchanged x = first;
  x.sent = row_map(s.B, s.w());
  x.arrived = row_map(o.B, 1);
  x.chosen.expert = ids("own_expert", choices);
  x.chosen.weight = arena.alloc(Mem::Activation, "own_weight", Dtype::F32, choices);
  x.inp = arena.alloc(Mem::Activation, "arrived", s.dtype, tokens);
  if (x.out) return x;  // the first block has made what all share
  x.chosen.dweight = arena.alloc(Mem::Workspace, "own_dweight", Dtype::F32, choices);
  x.out = arena.alloc(Mem::Workspace, "owner_out", Dtype::F32, tokens);
  x.dout = arena.alloc(Mem::Workspace, "owner_dout", s.dtype, tokens);
  return x;
}
/// Bytes that alloc_exchanged() takes for all blocks.
inline void add_exchanged_bytes(MemoryBytes& bytes, const ExchangeShape& s,
                                const ActivationPlan& plan) {
  const int64_t A = s.arrived_tokens(), a = size_of(s.dtype), k = s.own.k, C = s.own.C;
  const int64_t ids = 3 * (s.sent_rows() + A) + 2 * (s.ep + 1);
  bytes[Mem::Activation] += plan.set_count(s.own.L) * (4 * (ids + 2 * A * k) + a * A * C);
  bytes[Mem::Workspace] += A * (4 * (C + k) + a * C);
}

}  // namespace ladder
