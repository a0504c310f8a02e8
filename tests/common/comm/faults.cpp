// What a planted fault counts as its own. That each kind is seen: ../../*/equal_runs.txt.

#include "common/comm/comm.h"
#include "common/comm/faulty_comm.h"
#include "common/comm/reduction.h"
#include "common/comm/run_ranks.h"
#include "tests/common/comm/on_ranks.h"

namespace ladder::test {
namespace {

// Rank 0 is in a group that has sums of its own; all ranks still mean the same sum of theirs. What
// is split off with all ranks counts as they do.
TEST(Faults, EachGroupCountsItsOwn) {
  run_threads(4, [&](Comm& comm) {
    FaultyComm faulty(comm, {Fault::Kind::Skip, Operation::AllReduce, 3});
    const std::unique_ptr<Comm> pair = faulty.split(comm.rank() / 2, comm.rank()),
                                same = faulty.split(0, comm.rank());
    const auto count = [](Comm& group) {
      int64_t one = 1;
      group.all_reduce({.ptr = &one, .dtype = Dtype::I64, .shape = {1}});
      return one;
    };
    for (int i = 0; i < 2; ++i) EXPECT_EQ(count(faulty), 4);
    for (int i = 0; comm.rank() < 2 && i < 3; ++i) EXPECT_EQ(count(*pair), 2);
    EXPECT_EQ(count(*same), 4);
    EXPECT_EQ(faulty.seen(), 3);
    EXPECT_EQ(count(faulty), 1);
    EXPECT_EQ(faulty.seen(), 4);
    EXPECT_EQ(count(*pair), comm.rank() < 2 ? 1 : 2);
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
    Memory memory;
    Collectives collectives(faulty, ctx_of(cpu_kernels()), Reduction::Tree, memory.arena(),
                            Dtype::F32, 8);
    const Tensor data = memory.make(Dtype::F32, 8, comm.rank());
    collectives.all_reduce(data);
    expect_elements(data, [](int64_t i) { return sum(4, i); });
    EXPECT_EQ(faulty.seen(), 0);
  });
}

}  // namespace
}  // namespace ladder::test
