// Reductions in an order of our choice: sums, their order, and bytes on the wire.

#include "common/comm/reduction.h"

#include "kernels/kernels.h"
#include "kernels/tree.h"
#include "tests/common/comm/on_ranks.h"

namespace ladder::test {
namespace {

const std::vector<Reduction> kReductions = {Reduction::Halving, Reduction::Tree, Reduction::Ring,
                                            Reduction::Naive, Reduction::Native};
const std::vector<Reduction> kOwn = {Reduction::Halving, Reduction::Tree, Reduction::Ring,
                                     Reduction::Naive};
const std::vector<int64_t> kElements = {0, 1, 7, 64, 1000};
// Chunks of 2 and 3 ranks need several pieces, and do not fill them.
constexpr int64_t kManyPieces = 4 * Collectives::kPiece + 5;

bool is_legal(Reduction reduction, int ranks) {
  return reduction != Reduction::Halving || (ranks & (ranks - 1)) == 0;
}

Ctx ref_ctx() { return ctx_of(ref_kernels()); }
Ctx cpu_ctx() { return ctx_of(cpu_kernels()); }

/// What ranks contribute where the order of a sum shows: of different magnitudes and signs.
float shows_order(int rank, int64_t i) {
  const float magnitude = std::ldexp(1.0F, static_cast<int>((rank * 7 + i * 3) % 23));
  return (rank + i) % 3 == 0 ? -magnitude / 3 : magnitude / 7;
}

Tensor make_showing_order(Memory& memory, int64_t n, int rank) {
  const Tensor x = memory.make(Dtype::F32, n);
  for (int64_t i = 0; i < n; ++i) x.data<float>()[i] = shows_order(rank, i);
  return x;
}

template <class F>
void for_each_legal(Comm& comm, const std::vector<Reduction>& reductions, F&& f) {
  for (Reduction reduction : reductions)
    if (is_legal(reduction, comm.size())) f(reduction);
}

TEST(Reduction, AllReduceSums) {
  on_ranks([](Comm& comm) {
    for_each_legal(comm, kReductions, [&](Reduction reduction) {
      for (Dtype dtype : {Dtype::F32, Dtype::F64, Dtype::BF16, Dtype::F16})
        for (int64_t n : kElements) {
          Memory memory;
          const Ctx ctx = dtype == Dtype::F64 ? ref_ctx() : cpu_ctx();
          Collectives collectives(comm, ctx, reduction, memory.arena(), dtype, n);
          const Tensor data = memory.make(dtype, n, comm.rank());
          collectives.all_reduce(data);
          expect_elements(data, [&](int64_t i) { return sum(comm.size(), i); });
        }
    });
  });
}

TEST(Reduction, ReduceScatterThenAllGather) {
  on_ranks([](Comm& comm) {
    for_each_legal(comm, kReductions, [&](Reduction reduction) {
      for (int64_t align : {int64_t{1}, kAlign})
        for (int64_t n : kElements) {
          Memory memory;
          const Chunks chunks{n, comm.size(), align};
          if (reduction == Reduction::Native && !chunks.even()) continue;
          Collectives collectives(comm, cpu_ctx(), reduction, memory.arena(), Dtype::F32, n);
          const Tensor data = memory.make(Dtype::F32, n, comm.rank());
          collectives.reduce_scatter(data, chunks);
          const Range mine = chunks[comm.rank()];
          expect_elements(data.slice(mine.begin, mine.size()),
                          [&](int64_t i) { return sum(comm.size(), mine.begin + i); });
          collectives.all_gather(data, chunks);
          expect_elements(data, [&](int64_t i) { return sum(comm.size(), i); });
        }
    });
  });
}

TEST(Reduction, ManyPieces) {
  on_ranks([](Comm& comm) {
    if (comm.size() > 3) return;
    for_each_legal(comm, kOwn, [&](Reduction reduction) {
      Memory memory;
      Collectives collectives(comm, cpu_ctx(), reduction, memory.arena(), Dtype::F32, kManyPieces);
      const Tensor data = memory.make(Dtype::F32, kManyPieces, comm.rank());
      collectives.all_reduce(data);
      expect_elements(data, [&](int64_t i) { return sum(comm.size(), i); });
    });
  });
}

/// data after an all-reduce of values that show their order
Tensor reduced(Comm& comm, Memory& memory, Reduction reduction, int64_t n) {
  Collectives collectives(comm, cpu_ctx(), reduction, memory.arena(), Dtype::F32, n);
  const Tensor data = make_showing_order(memory, n, comm.rank());
  collectives.all_reduce(data);
  return data;
}

/// The sum of element i as a single rank adds.
float tree_by_rank(int ranks, int64_t i) {
  return tree_sum<float>(ranks,
                         [&](int64_t rank) { return shows_order(static_cast<int>(rank), i); });
}
/// The sum in the order first, first + 1, ..., around the ring.
float one_by_one(int ranks, int first, int64_t i) {
  float total = shows_order(first % ranks, i);
  for (int k = 1; k < ranks; ++k) total += shows_order((first + k) % ranks, i);
  return total;
}

TEST(Reduction, EachSumsInItsOrder) {
  on_ranks([](Comm& comm) {
    constexpr int64_t n = 1001;
    const int N = comm.size();
    Memory memory;
    for_each_legal(comm, {Reduction::Halving, Reduction::Tree}, [&](Reduction reduction) {
      expect_elements(reduced(comm, memory, reduction, n),
                      [&](int64_t i) { return tree_by_rank(N, i); });
    });
    expect_elements(reduced(comm, memory, Reduction::Naive, n),
                    [&](int64_t i) { return one_by_one(N, 0, i); });
    const Tensor data = reduced(comm, memory, Reduction::Ring, n);
    int64_t differ = 0;
    for (int chunk = 0; chunk < N; ++chunk) {
      const Range range = Chunks{n, N}[chunk];
      expect_elements(data.slice(range.begin, range.size()), [&](int64_t i) {
        const float total = one_by_one(N, chunk + 1, range.begin + i);
        differ += total != tree_by_rank(N, range.begin + i);
        return total;
      });
    }
    // With three or more ranks the order matters; these values show it.
    EXPECT_EQ(differ > 0, N > 2) << differ;
  });
}

int64_t over_ranks(Comm& comm, int64_t mine) {
  Memory memory;
  const Tensor total = memory.make(Dtype::I64, 1);
  total.data<int64_t>()[0] = mine;
  comm.all_reduce(total);
  return total.data<int64_t>()[0];
}

TEST(Reduction, WireBytesAreTheFormulas) {
  on_ranks([](Comm& comm) {
    const std::unique_ptr<Comm> counters = comm.split(0, 0);
    const int64_t N = comm.size();
    const bool first = comm.rank() == 0;
    for (const int64_t n : {1000 * N, int64_t{1003}})
      for_each_legal(comm, kOwn, [&](Reduction reduction) {
        SCOPED_TRACE(std::string(to_string(reduction)));
        const int64_t b = n * 4;
        Memory memory;
        const std::unique_ptr<Comm> fresh = comm.split(0, 0);
        Collectives collectives(*fresh, cpu_ctx(), reduction, memory.arena(), Dtype::F32, n);
        const Tensor data = memory.make(Dtype::F32, n, comm.rank());
        collectives.all_reduce(data);
        const OperationCount counted = fresh->statistics()[Operation::AllReduce];
        EXPECT_EQ(counted.calls, 1);
        EXPECT_EQ(counted.payload_bytes, b);
        EXPECT_EQ(counted.wire_bytes, fresh->statistics().wire_bytes())
            << "counted as messages, too";
        EXPECT_EQ(over_ranks(*counters, counted.wire_bytes), 2 * (N - 1) * b);
        if (reduction == Reduction::Naive) {
          EXPECT_EQ(counted.wire_bytes, first ? (N - 1) * b : b);
        }
        if (reduction == Reduction::Naive || reduction == Reduction::Tree || n % N != 0) return;
        EXPECT_EQ(counted.wire_bytes, 2 * (N - 1) * b / N);
        collectives.reduce_scatter(data, {n, N});
        collectives.all_gather(data, {n, N});
        for (Operation half : {Operation::ReduceScatter, Operation::AllGather})
          EXPECT_EQ(fresh->statistics()[half], (OperationCount{1, b, (N - 1) * b / N}));
      });
  });
}

TEST(Reduction, ChunksCoverAndAlign) {
  for (int64_t n : {0, 1, 63, 64, 65, 1000, 4096})
    for (int64_t count : {1, 2, 3, 8})
      for (int64_t align : {int64_t{1}, kAlign}) {
        const Chunks chunks{n, count, align};
        int64_t end = 0;
        bool even = true;
        for (int64_t i = 0; i < count; ++i) {
          even = even && chunks[i].size() == chunks[0].size();
          EXPECT_EQ(chunks[i].begin, end);
          EXPECT_TRUE(chunks[i].begin % align == 0 || chunks[i].begin == n);
          end = chunks[i].end;
        }
        EXPECT_EQ(end, n);
        EXPECT_EQ(chunks.even(), even);
      }
}

}  // namespace
}  // namespace ladder::test
