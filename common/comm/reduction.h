// Reductions in an order of our choice, over messages and the `add` kernel.
//
// An all-reduce of b bytes on N ranks, by the order of its sum and by what travels. All send
// 2 (N-1) b in sum; what differs is how much of it passes through one rank.
//
//   halving  ((0+1)+(2+3))+((4+5)+(6+7))           every rank sends 2 (N-1)/N b; 2 log2 N messages
//   tree     the same, for any N (kernels/tree.h)  rank 0 sends log2 N b; 2 log2 N messages
//   ring     of chunk c: ((c+1)+(c+2))+...+c       every rank sends 2 (N-1)/N b; 2 (N-1) messages
//   naive    ((0+1)+2)+3                           rank 0 sends (N-1) b; 2 (N-1) messages
//   native   the library's                         the library's
//
// Messages are those that wait for one another. So halving and tree have the bits of one rank
// alone, and halving and ring have no bottleneck. Halving: R. Rabenseifner, "Optimization of
// Collective Reduction Operations", ICCS 2004. In its all-reduce each rank keeps what makes every
// message one piece of memory. A reduce-scatter must leave chunk r on rank r: then the chunks for a
// partner are every second, every fourth, ..., and go one after the other, in N-1 messages; so do
// those of an all-gather.
#pragma once

#include <algorithm>
#include <array>

#include "common/comm/comm.h"
#include "common/names.h"
#include "kernels/arena.h"
#include "kernels/context.h"

namespace ladder {

/// A way to sum over ranks: in which order, by which messages.
enum class Reduction : uint8_t { Halving, Tree, Ring, Naive, Native };
constexpr auto names_of(Reduction) {
  return std::array{"halving", "tree", "ring", "naive", "native"};
}

/// Whether its sum is the tree by rank: the same bits as one rank alone.
constexpr bool is_exact(Reduction reduction) {
  return reduction == Reduction::Halving || reduction == Reduction::Tree;
}

/// @throws UserError if `ranks` ranks cannot reduce so, naming the reductions that can
void check_reduction(Reduction reduction, int ranks);

/// Sums over the ranks of one Comm. All is in place, on flat tensors.
class Reducer {
 public:
  /// Elements of one message: large enough for the wire, small enough that what has arrived is
  /// added while it is in the cache.
  static constexpr int64_t kPiece = 1 << 18;

  /// @param dtype,elements of the largest tensor to reduce. F32, BF16 or F16; F64 with `ref`
  /// @param arena gives workspace_elements(), as Mem::Comm
  /// @throws UserError as check_reduction()
  Reducer(Comm& comm, const Ctx& ctx, Reduction reduction, Arena& arena, Dtype dtype,
          int64_t elements);

  /// Chunk rank() becomes its sum over ranks. The rest of `data` is used up: it holds parts of
  /// sums. data (chunks.elements)
  void reduce_scatter(Tensor data, const Chunks& chunks);

  /// The other chunks become those of their ranks: the other half of an all-reduce. Any dtype.
  /// data (chunks.elements)
  void all_gather(Tensor data, const Chunks& chunks);

  /// data = its sum over ranks.
  void all_reduce(Tensor data);

  Comm& comm() const { return comm_; }

  /// What the constructor allocates.
  static int64_t workspace_elements(int ranks, int64_t elements) {
    return ranks == 1 ? 0 : 2 * std::min(kPiece, elements);
  }

 private:
  // Of one algorithm each. The parts of an all-reduce leave the sum of chunk r on rank r, or of
  // everything on rank 0.
  void halving_all_reduce(Tensor data);
  void halving_reduce_scatter(Tensor data, const Chunks& chunks);
  void halving_all_gather(Tensor data, const Chunks& chunks);
  void ring_reduce_scatter(Tensor data, const Chunks& chunks);
  void ring_all_gather(Tensor data, const Chunks& chunks);
  void tree_reduce(Tensor data);
  void tree_broadcast(Tensor data);
  void naive_reduce(Tensor data);
  void naive_broadcast(Tensor data);

  // What tree and naive share.
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
  Tensor arrived_;  ///< (2, piece): one is added while the next arrives
};

}  // namespace ladder
