#include "common/comm/reduction.h"

#include <bit>

#include "common/error.h"
#include "kernels/kernels.h"

namespace ladder {
namespace {

bool is_legal(Reduction reduction, int ranks) {
  return reduction != Reduction::Halving || std::has_single_bit(static_cast<unsigned>(ranks));
}

/// "halving, tree, ring, naive, native": the reductions that `ranks` ranks can use.
std::string legal_names(int ranks) {
  std::string names;
  for (size_t i = 0; i < kNames<Reduction>.size(); ++i)
    if (is_legal(static_cast<Reduction>(i), ranks))
      names += fmt::format("{}{}", names.empty() ? "" : ", ", kNames<Reduction>[i]);
  return names;
}

/// Part i of a flat tensor in parts of kPiece elements. Past the end it is empty.
Tensor piece_of(const Tensor& data, int64_t i) {
  const int64_t begin = std::min(data.size(), i * Collectives::kPiece);
  return data.slice(begin, std::min(data.size() - begin, Collectives::kPiece));
}

/// One of the n parts of a flat tensor, n a power of two: bit 0 of `rank` chooses a half of it, bit
/// 1 a half of that half, and so on. (leaf(i, 2, K) is half i of K elements; no sum is meant here.)
Tensor part_of(Tensor part, int rank, int n) {
  for (int d = 1; d < n; d *= 2) {
    const Range half = leaf(rank & d ? 1 : 0, 2, part.size());
    part = part.slice(half.begin, half.size());
  }
  return part;
}

/// For those who write jobs, as lab 07 asks. A job that reads a variable which is gone mostly sees
/// a dtype that does not exist.
/// @throws CheckError that says so
void check_is_there(const Tensor& data) {
  if (dtype_text(data.dtype) != "?") return;
  throw CheckError(
      "a job reads a tensor that is gone. A job may run after the variables around it have ended: "
      "its lambda must capture tensors by value, as [section] does, and not by reference, as [&]");
}

}  // namespace

void check_reduction(Reduction reduction, int ranks) {
  if (is_legal(reduction, ranks)) return;
  throw UserError(
      "--reduction halving halves the ranks again and again, so their number must be a power of "
      "two, and it is {}; legal with {} ranks: {}",
      ranks, ranks, legal_names(ranks));
}

Collectives::Collectives(Comm& comm, const Ctx& ctx, Reduction reduction, Arena& arena, Dtype dtype,
                         int64_t elements)
    : comm_(comm), ctx_(ctx), reduction_(reduction) {
  check_reduction(reduction, comm.size());
  const int64_t piece = workspace_elements(comm.size(), elements) / 2;
  arrived_ = arena.alloc(Mem::Comm, "reduction.arrived", dtype, {2, piece});
}

Call Collectives::call(Operation operation, Tensor data, Tensor result) const {
  return {
      .operation = operation, .payload = data, .result = result, .variant = to_string(reduction_)};
}

void Collectives::check_sum(const Tensor& data) const {
  check_is_there(data);
  CHECK(data.dtype == arrived_.dtype, "{} to reduce, workspace of {}", dtype_text(data.dtype),
        dtype_text(arrived_.dtype));
}

void Collectives::check_chunks(const Tensor& data, const Chunks& chunks) const {
  check_is_there(data);
  CHECK(data.size() == chunks.elements && chunks.count == comm_.size(),
        "{} elements on {} ranks, in {} chunks of {}", data.size(), comm_.size(), chunks.count,
        chunks.elements);
  CHECK(reduction_ != Reduction::Native || chunks.even(),
        "--reduction native wants equal chunks, and {} elements are cut into {} unequal ones",
        chunks.elements, chunks.count);
}

void Collectives::reduce_scatter(Tensor data, const Chunks& chunks) {
  check_sum(data);
  check_chunks(data, chunks);
  if (reduction_ == Reduction::Native)
    return comm_.reduce_scatter(chunks.of(data, comm_.rank()), data);
  comm_.collective(call(Operation::ReduceScatter, data, chunks.of(data, comm_.rank())), [&] {
    switch (reduction_) {
      case Reduction::Halving: return halving_reduce_scatter(data, chunks);
      case Reduction::Ring: return ring_reduce_scatter(data, chunks);
      default: reduce_to_root(data); return scatter_from_root(data, chunks);
    }
  });
}

void Collectives::all_gather(Tensor data, const Chunks& chunks) {
  check_chunks(data, chunks);
  if (reduction_ == Reduction::Native) return comm_.all_gather(data, chunks.of(data, comm_.rank()));
  comm_.collective(call(Operation::AllGather, data, data), [&] {
    switch (reduction_) {
      case Reduction::Halving: return halving_all_gather(data, chunks);
      case Reduction::Ring: return ring_all_gather(data, chunks);
      default: gather_to_root(data, chunks); return broadcast_from_root(data);
    }
  });
}

void Collectives::all_reduce(Tensor data) {
  check_sum(data);
  if (reduction_ == Reduction::Native) return comm_.all_reduce(data);
  const Tensor line = flat(data);
  const Chunks chunks{line.size(), comm_.size()};
  comm_.collective(call(Operation::AllReduce, data, data), [&] {
    switch (reduction_) {
      case Reduction::Halving: return halving_all_reduce(line);
      case Reduction::Ring: ring_reduce_scatter(line, chunks); return ring_all_gather(line, chunks);
      default: reduce_to_root(line); return broadcast_from_root(line);
    }
  });
}

// ---- halving and doubling ----------------------------------------------------------------------

// Before the step with distance d, a rank holds sums over d neighbors, of one d-th of the buffer:
// its low bits say which (part_of). In the step, one partner sums the lower half of that part, the
// other the upper half. On the way back, what was summed last is exchanged first. Rank 1 of 4 with
// 8 elements:
//
//   d = 1, partner 0    sends 0 to 3, adds to 4 to 7      bit 0 of rank 1 is 1: the upper half
//   d = 2, partner 3    sends 6 and 7, adds to 4 and 5    bit 1 is 0: the lower half of that
//   d = 2, partner 3    sends 4 and 5, gets 6 and 7       the way back
//   d = 1, partner 0    sends 4 to 7, gets 0 to 3
void Collectives::halving_all_reduce(Tensor data) {
  const int rank = comm_.rank(), ranks = comm_.size();
  const auto partner = [&](int d) { return rank ^ d; };
  const auto half = [&](int of, int d) { return part_of(data, of, 2 * d); };
  for (int d = 1; d < ranks; d *= 2)
    exchange_and_add(half(partner(d), d), partner(d), half(rank, d), partner(d));
  for (int d = ranks / 2; d >= 1; d /= 2)
    comm_.exchange(half(rank, d), partner(d), half(partner(d), d), partner(d));
}

// Before the step with distance d, a rank holds sums over d neighbors. They are sums of the chunks
// whose owners equal the rank in the bits below d. The partner differs from the rank in bit d, and
// gets the chunks whose owners differ in bit d, too.
void Collectives::halving_reduce_scatter(Tensor data, const Chunks& chunks) {
  const int rank = comm_.rank(), ranks = comm_.size();
  for (int d = 1; d < ranks; d *= 2) {
    const int partner = rank ^ d;
    for (int owner = rank & (2 * d - 1); owner < ranks; owner += 2 * d)
      exchange_and_add(chunks.of(data, owner ^ d), partner, chunks.of(data, owner), partner);
  }
}

// The same way back: what was summed last is exchanged first.
void Collectives::halving_all_gather(Tensor data, const Chunks& chunks) {
  const int rank = comm_.rank(), ranks = comm_.size();
  for (int d = ranks / 2; d >= 1; d /= 2) {
    const int partner = rank ^ d;
    for (int owner = rank & (2 * d - 1); owner < ranks; owner += 2 * d)
      comm_.exchange(chunks.of(data, owner), partner, chunks.of(data, owner ^ d), partner);
  }
}

// ---- ring --------------------------------------------------------------------------------------

// The sum of chunk c starts at rank c + 1 and goes around once, to the owner of the chunk.
void Collectives::ring_reduce_scatter(Tensor data, const Chunks& chunks) {
  const int rank = comm_.rank(), ranks = comm_.size();
  const int next = (rank + 1) % ranks, before = (rank + ranks - 1) % ranks;
  for (int step = 1; step < ranks; ++step) {
    const int leaving = (rank + ranks - step) % ranks;
    const int arriving = (leaving + ranks - 1) % ranks;
    exchange_and_add(chunks.of(data, leaving), next, chunks.of(data, arriving), before);
  }
}

void Collectives::ring_all_gather(Tensor data, const Chunks& chunks) {
  const int rank = comm_.rank(), ranks = comm_.size();
  const int next = (rank + 1) % ranks, before = (rank + ranks - 1) % ranks;
  for (int step = 1; step < ranks; ++step) {
    const int leaving = (rank + ranks - step + 1) % ranks;
    const int arriving = (leaving + ranks - 1) % ranks;
    comm_.exchange(chunks.of(data, leaving), next, chunks.of(data, arriving), before);
  }
}

// ---- tree --------------------------------------------------------------------------------------

// Ranks with bit d set give their sum to the neighbor at distance d, and are then done.
void Collectives::tree_reduce(Tensor data) {
  const int rank = comm_.rank(), ranks = comm_.size();
  for (int d = 1; d < ranks; d *= 2) {
    if (rank & d) return exchange_and_add(data, rank - d, {}, 0);
    if (rank + d < ranks) exchange_and_add({}, 0, data, rank + d);
  }
}

void Collectives::tree_broadcast(Tensor data) {
  const int rank = comm_.rank(), ranks = comm_.size();
  int d = 1;
  while (d < ranks && !(rank & d)) d *= 2;
  if (rank != 0) comm_.exchange({}, 0, data, rank - d);
  for (d /= 2; d >= 1; d /= 2)
    if (rank + d < ranks) comm_.exchange(data, rank + d, {}, 0);
}

// ---- naive -------------------------------------------------------------------------------------

void Collectives::naive_reduce(Tensor data) {
  if (comm_.rank() != 0) return exchange_and_add(data, 0, {}, 0);
  for (int rank = 1; rank < comm_.size(); ++rank) exchange_and_add({}, 0, data, rank);
}

void Collectives::naive_broadcast(Tensor data) {
  if (comm_.rank() != 0) return comm_.exchange({}, 0, data, 0);
  for (int rank = 1; rank < comm_.size(); ++rank) comm_.exchange(data, rank, {}, 0);
}

// ---- what tree and naive share -----------------------------------------------------------------

void Collectives::reduce_to_root(Tensor data) {
  reduction_ == Reduction::Tree ? tree_reduce(data) : naive_reduce(data);
}

void Collectives::broadcast_from_root(Tensor data) {
  reduction_ == Reduction::Tree ? tree_broadcast(data) : naive_broadcast(data);
}

void Collectives::scatter_from_root(Tensor data, const Chunks& chunks) {
  if (comm_.rank() != 0) return comm_.exchange({}, 0, chunks.of(data, comm_.rank()), 0);
  for (int rank = 1; rank < comm_.size(); ++rank)
    comm_.exchange(chunks.of(data, rank), rank, {}, 0);
}

void Collectives::gather_to_root(Tensor data, const Chunks& chunks) {
  if (comm_.rank() != 0) return comm_.exchange(chunks.of(data, comm_.rank()), 0, {}, 0);
  for (int rank = 1; rank < comm_.size(); ++rank)
    comm_.exchange({}, 0, chunks.of(data, rank), rank);
}

// ---- one message -------------------------------------------------------------------------------

/// Sends `out` (nothing if null), and adds what arrives to `into` (nothing if null). Piece i + 1
/// travels while piece i is added.
void Collectives::exchange_and_add(Tensor out, int to, Tensor into, int from) {
  const int64_t most = std::max(out ? out.size() : 0, into ? into.size() : 0);
  const auto arrived = [&](int64_t i) {
    return flat(arrived_.slice(i % 2, 1)).first(into ? piece_of(into, i).size() : 0);
  };
  // On a device this waits for the addition that used the same half of arrived_ before.
  const auto start = [&](int64_t i) {
    return comm_.iexchange(out ? piece_of(out, i) : out, to, arrived(i), from);
  };
  Pending under_way = start(0);
  for (int64_t i = 0; i * kPiece < most; ++i) {
    under_way.wait();
    under_way = start(i + 1);  // past the end both pieces are empty
    const Tensor other = arrived(i);
    if (other.size() == 0) continue;
    const Tensor mine = piece_of(into, i);
    // The lower rank's number comes first, as in the tree; two numbers have one sum in any order.
    const bool mine_first = comm_.rank() < from;
    ctx_.kernels->add(ctx_, mine, mine_first ? mine : other, mine_first ? other : mine);
  }
}

}  // namespace ladder
