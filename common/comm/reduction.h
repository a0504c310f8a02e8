// Reductions in an order of our choice, made of messages and the `add` kernel: what NCCL and MPI
// call the algorithm of a collective.
//
// The table shows an all-reduce of b bytes on N ranks: the order of its sum, and what travels. The
// first four send 2 (N-1) b in total. They differ in how much of it goes through one rank.
//
//   halving  ((0+1)+(2+3))+((4+5)+(6+7))           every rank sends 2 (N-1)/N b; 2 log2 N messages
//   tree     the same, for any N (kernels/tree.h)  rank 0 sends log2 N b; 2 log2 N messages
//   ring     of chunk c: ((c+1)+(c+2))+...+c       every rank sends 2 (N-1)/N b; 2 (N-1) messages
//   naive    ((0+1)+2)+3                           rank 0 sends (N-1) b; 2 (N-1) messages
//   native   the library's                         the library's
//
// Only messages that wait for one another are counted (rounds). Halving and tree have the bits of a
// single rank. Halving and ring have no bottleneck. Halving, in full recursive halving and
// doubling: R. Rabenseifner, "Optimization of Collective Reduction Operations", ICCS 2004. In an
// all-reduce a rank may keep any chunk, and it keeps the one for which every message is one range
// of memory. But a reduce-scatter must leave chunk r on rank r. The chunks for a partner are then
// every second, every fourth, ... chunk. They are sent one after the other, in N-1 messages; an
// all-gather does the same.
#pragma once

#include <algorithm>
#include <array>

#include "common/comm/comm.h"
#include "common/names.h"
#include "kernels/arena.h"
#include "kernels/context.h"

namespace ladder {

/// A way to sum over ranks: the order of the sum, and the messages.
enum class Reduction : uint8_t { Halving, Tree, Ring, Naive, Native };
constexpr auto names_of(Reduction) {
  return std::array{"halving", "tree", "ring", "naive", "native"};
}

/// Whether its sum is the tree by rank, which has the same bits as a single rank.
constexpr bool is_exact(Reduction reduction) {
  return reduction == Reduction::Halving || reduction == Reduction::Tree;
}

/// @throws UserError if `ranks` ranks cannot use this reduction. It names those that they can use.
void check_reduction(Reduction reduction, int ranks);

/// Sums over the ranks of one Comm. Everything is in place, on flat tensors.
class Collectives {
 public:
  /// Elements of one message. It is large enough for the wire, and small enough that what arrives
  /// is still in the cache when it is added.
  static constexpr int64_t kPiece = 1 << 18;

  /// @param dtype,elements of the largest tensor to reduce. F32, BF16 or F16; F64 with `ref`
  /// @param arena gives workspace_elements() as Mem::Comm
  /// @throws UserError as check_reduction() does
  Collectives(Comm& comm, const Ctx& ctx, Reduction reduction, Arena& arena, Dtype dtype,
              int64_t elements);

  /// Chunk rank() becomes its sum over ranks. The rest of `data` then holds parts of sums.
  /// data (chunks.elements)
  void reduce_scatter(Tensor data, const Chunks& chunks);

  /// The other chunks become those of the ranks that own them. This is the second half of an
  /// all-reduce. Any dtype.
  /// data (chunks.elements)
  void all_gather(Tensor data, const Chunks& chunks);

  /// data = its sum over ranks.
  void all_reduce(Tensor data);

  Comm& comm() const { return comm_; }

  /// How many elements the constructor allocates.
  static int64_t workspace_elements(int ranks, int64_t elements) {
    return ranks == 1 ? 0 : 2 * std::min(kPiece, elements);
  }

 private:
  // The parts of each algorithm. The first part of an all-reduce leaves the sum of chunk r on rank
  // r (ring), or all sums on rank 0 (tree, naive). Halving has an all-reduce of its own: see above.
  void halving_all_reduce(Tensor data);
  void halving_reduce_scatter(Tensor data, const Chunks& chunks);
  void halving_all_gather(Tensor data, const Chunks& chunks);
  void ring_reduce_scatter(Tensor data, const Chunks& chunks);
  void ring_all_gather(Tensor data, const Chunks& chunks);
  void tree_reduce(Tensor data);
  void tree_broadcast(Tensor data);
  void naive_reduce(Tensor data);
  void naive_broadcast(Tensor data);

  // Shared by tree and naive.
  void reduce_to_root(Tensor data);
  void broadcast_from_root(Tensor data);
  void scatter_from_root(Tensor data, const Chunks& chunks);
  void gather_to_root(Tensor data, const Chunks& chunks);

  void exchange_and_add(Tensor out, int to, Tensor into, int from);
  Call call(Operation operation, Tensor data, Tensor result) const;
  void check_sum(const Tensor& data) const;
  void check_chunks(const Tensor& data, const Chunks& chunks) const;

  Comm& comm_;
  Ctx ctx_;
  Reduction reduction_;
  Tensor arrived_;  ///< (2, piece): one half is added while the other arrives
};

}  // namespace ladder
