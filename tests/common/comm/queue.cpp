// CommQueue: jobs run in order, beside the rank's own work, and fail with it.

#include "common/comm/comm_queue.h"
#include "common/comm/reduction.h"
#include "common/comm/run_ranks.h"
#include "tests/common/comm/on_ranks.h"

namespace ladder::test {
namespace {

TEST(CommQueue, ReducesWhileTheRankCommunicates) {
  on_ranks([](Comm& comm) {
    const std::unique_ptr<Comm> beside = comm.split(0, comm.rank());
    constexpr int64_t n = 5000;
    constexpr int kBuckets = 6;
    Memory memory;
    Collectives collectives(*beside, ctx_of(cpu_kernels()), Reduction::Tree, memory.arena(),
                            Dtype::F32, n);
    std::vector<Tensor> buckets;
    std::vector<Pending> pending;
    CommQueue queue(*beside);
    for (int i = 0; i < kBuckets; ++i) {
      buckets.push_back(memory.make(Dtype::F32, n, comm.rank()));
      pending.push_back(
          queue.run([&collectives, bucket = buckets.back()] { collectives.all_reduce(bucket); }));
      const Tensor other = memory.make(Dtype::I64, 3, comm.rank());
      comm.all_reduce(other);
      expect_elements(other, [&](int64_t k) { return sum(comm.size(), k); });
    }
    for (int i = 0; i < kBuckets; ++i) {
      pending[i].wait();
      expect_elements(buckets[i], [&](int64_t k) { return sum(comm.size(), k); });
    }
    EXPECT_EQ(beside->statistics()[Operation::AllReduce].calls, kBuckets);
  });
}

// After a job that failed no job runs. Otherwise its messages would meet peers that still expect
// messages of the failed job.
TEST(CommQueue, WaitThrowsWhatTheFirstJobToFailThrew) {
  on_ranks([](Comm& comm) {
    CommQueue queue(comm);
    bool ran = false;
    Pending first = queue.run([] { throw std::invalid_argument("in the job"); });
    Pending second = queue.run([&] { ran = true; });
    EXPECT_THROW(first.wait(), std::invalid_argument);
    EXPECT_THROW(second.wait(), std::invalid_argument);
    EXPECT_THROW(queue.run([&] { ran = true; }).wait(), std::invalid_argument);
    EXPECT_FALSE(ran);
  });
}

}  // namespace
}  // namespace ladder::test
