// Negative controls: sums that are right without a fault are wrong with one, of every kind.

#include "common/comm/comm.h"
#include "common/comm/faulty_comm.h"
#include "common/comm/reduction.h"
#include "common/comm/run_ranks.h"
#include "tests/common/comm/on_ranks.h"

namespace ladder::test {
namespace {

constexpr int64_t kNumbers = 128;

/// A gradient of one rank: no two halves, and no two ranks' are alike.
Tensor gradient(Memory& memory, int rank) {
  const Tensor x = memory.make(Dtype::F32, kNumbers);
  for (int64_t i = 0; i < kNumbers; ++i) put(x, i, (rank + 1) * static_cast<int>(i + 1));
  return x;
}

bool is_sum(const Tensor& x, int ranks) {
  for (int64_t i = 0; i < kNumbers; ++i)
    if (number_at(x, i) != static_cast<double>(ranks * (ranks + 1) / 2 * (i + 1))) return false;
  return true;
}

/// Whether this rank has three sums of gradients right, in whole and in halves.
bool sums_are_right(Comm& comm, Reduction reduction) {
  bool right = true;
  for (int step = 0; step < 3; ++step) {
    Memory memory;
    const Chunks chunks{kNumbers, comm.size()};
    const Tensor data = gradient(memory, comm.rank()), halves = gradient(memory, comm.rank());
    Collectives collectives(comm, ctx_of(cpu_kernels()), reduction, memory.arena(), Dtype::F32,
                            kNumbers);
    collectives.all_reduce(data);
    collectives.reduce_scatter(halves, chunks);
    collectives.all_gather(halves, chunks);
    right = right && is_sum(data, comm.size()) && is_sum(halves, comm.size());
  }
  return right;
}

TEST(Faults, EveryKindIsSeenInASum) {
  for (int ranks : {2, 4})
    for (Reduction reduction : {Reduction::Tree, Reduction::Native})
      for (Operation operation :
           {Operation::AllReduce, Operation::ReduceScatter, Operation::AllGather})
        for (Fault::Kind kind : {Fault::Kind::None, Fault::Kind::Skip, Fault::Kind::Corrupt,
                                 Fault::Kind::Twice, Fault::Kind::Swap}) {
          std::atomic<int> wrong = 0;
          run_threads(ranks, [&](Comm& comm) {
            FaultyComm faulty(comm, {kind, operation, 2});
            // Through a split, as chapters that have groups do.
            const std::unique_ptr<Comm> group = faulty.split(0, 0);
            wrong += sums_are_right(*group, reduction) ? 0 : 1;
            EXPECT_GT(faulty.seen(), 2) << "a control that never met its fault controls nothing";
          });
          // Gathering what is gathered changes nothing.
          const bool harmless = kind == Fault::Kind::None ||
                                (kind == Fault::Kind::Twice && operation == Operation::AllGather);
          EXPECT_EQ(wrong == 0, harmless)
              << ranks << " ranks, " << to_string(operation) << ", " << to_string(kind);
        }
}

/// Three messages from the rank before. Element i of message k of rank r is (3 r + k + 1) (i + 1),
/// and here number 1 has gone wrong.
void expect_one_spoilt(Comm& comm, Fault::Kind kind) {
  const int before = (comm.rank() + comm.size() - 1) % comm.size();
  Memory memory;
  const Tensor inp = memory.make(Dtype::F32, kNumbers);
  for (int k = 0; k < 3; ++k) {
    const Tensor out = gradient(memory, 3 * comm.rank() + k);
    comm.exchange(out, (comm.rank() + 1) % comm.size(), inp, before);
    const bool spoilt = k == 1;
    const auto sent = [&](int64_t i) {
      if (spoilt && kind == Fault::Kind::Swap) i = (i + kNumbers / 2) % kNumbers;
      const int64_t message = spoilt && kind == Fault::Kind::Skip ? 0 : k;
      return static_cast<double>((3 * before + message + 1) * (i + 1));
    };
    const bool bit = spoilt && kind == Fault::Kind::Corrupt && comm.rank() == 0;
    for (int64_t i = 0; i < kNumbers; ++i)
      EXPECT_EQ(number_at(inp, i) == sent(i), !(bit && i == kNumbers / 2))
          << "message " << k << ", " << i;
  }
}

TEST(Faults, EveryKindIsSeenInAMessage) {
  for (int ranks : {2, 3})
    for (Fault::Kind kind :
         {Fault::Kind::None, Fault::Kind::Skip, Fault::Kind::Corrupt, Fault::Kind::Swap})
      run_threads(ranks, [&](Comm& comm) {
        FaultyComm faulty(comm, {kind, Operation::Recv, 1});
        const std::unique_ptr<Comm> group = faulty.split(0, comm.rank());
        SCOPED_TRACE(fmt::format("{} ranks, kind {}", ranks, static_cast<int>(kind)));
        expect_one_spoilt(*group, kind);
        EXPECT_GT(faulty.seen(), 1);
      });
}

// Rank 0 is in a group that has sums of its own; all ranks still mean the same sum of theirs. What
// is split off with all ranks counts as they do.
TEST(Faults, EachGroupCountsItsOwn) {
  run_threads(4, [&](Comm& comm) {
    FaultyComm faulty(comm, {Fault::Kind::Skip, Operation::AllReduce, 3});
    const std::unique_ptr<Comm> pair = faulty.split(comm.rank() / 2, comm.rank()),
                                same = faulty.split(0, comm.rank());
    const auto sum = [](Comm& group) {
      int64_t one = 1;
      group.all_reduce({.ptr = &one, .dtype = Dtype::I64, .shape = {1}});
      return one;
    };
    for (int i = 0; i < 2; ++i) EXPECT_EQ(sum(faulty), 4);
    for (int i = 0; comm.rank() < 2 && i < 3; ++i) EXPECT_EQ(sum(*pair), 2);
    EXPECT_EQ(sum(*same), 4);
    EXPECT_EQ(faulty.seen(), 3);
    EXPECT_EQ(sum(faulty), 1);
    EXPECT_EQ(faulty.seen(), 4);
    EXPECT_EQ(sum(*pair), comm.rank() < 2 ? 1 : 2);
  });
}

TEST(Faults, TextsAreNotMeant) {
  for (const Operation operation : {Operation::AllGather, Operation::Recv})
    run_threads(3, [&](Comm& comm) {
      FaultyComm faulty(comm, {Fault::Kind::Swap, operation, 0});
      const std::vector<std::string> all =
          gather_text(faulty, fmt::format("of rank {}", comm.rank()));
      EXPECT_EQ(all.empty() ? "of rank 2" : all.at(2), "of rank 2");
      EXPECT_EQ(faulty.seen(), 0);
    });
}

// A sum is made of messages that do not count.
TEST(Faults, MessagesOfACollectiveAreNotMeant) {
  run_threads(4, [&](Comm& comm) {
    FaultyComm faulty(comm, {Fault::Kind::Skip, Operation::Recv, 0});
    EXPECT_TRUE(sums_are_right(faulty, Reduction::Tree));
    EXPECT_EQ(faulty.seen(), 0);
  });
}

TEST(Faults, NoMessageComesTwice) {
  run_threads(1, [&](Comm& comm) {
    EXPECT_THROW(FaultyComm(comm, {Fault::Kind::Twice, Operation::Recv, 0}), CheckError);
  });
}

}  // namespace
}  // namespace ladder::test
