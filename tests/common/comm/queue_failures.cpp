// A rank that fails with jobs under way ends, and ends the others.

#include "common/comm/comm_queue.h"
#include "common/comm/failure.h"
#include "common/comm/reduction.h"
#include "common/comm/run_ranks.h"
#include "tests/common/comm/on_ranks.h"

namespace ladder::test {
namespace {

/// Every rank's queue waits for rank 1, which does not come.
void leave_job_under_way(Comm& comm, const std::function<void(Pending&)>& then) {
  const std::unique_ptr<Comm> beside = comm.split(0, comm.rank());
  Memory memory;
  const Tensor data = memory.make(Dtype::F32, 10, 0);
  CommQueue queue(*beside);
  Pending pending = queue.run([&] {
    if (comm.rank() != 1) beside->all_reduce(data);
  });
  then(pending);
}

TEST(CommQueueFailures, TheCauseIsTold) {
  for (int failing : {0, 1, 2}) {
    try {
      run_threads(3, [&](Comm& comm) {
        leave_job_under_way(comm, [&](Pending& pending) {
          if (comm.rank() == failing) throw CheckError("the cause");
          if (comm.rank() == 1) return pending.wait();
          EXPECT_THROW(pending.wait(), Aborted);
        });
      });
      ADD_FAILURE() << "no exception";
    } catch (const RankFailed& e) {
      EXPECT_EQ(std::string(e.what()), fmt::format("internal error: rank {}: the cause", failing));
    }
  }
}

/// What run_threads() throws.
std::string failure_of(int ranks, const std::function<void(Comm&)>& body) {
  try {
    run_threads(ranks, body);
  } catch (const RankFailed& e) {
    return e.what();
  }
  return "none";
}

TEST(CommQueueFailures, AForgottenJobIsAnError) {
  const std::string told =
      failure_of(2, [](Comm& comm) { leave_job_under_way(comm, [](Pending&) {}); });
  EXPECT_EQ(told.substr(std::min<size_t>(22, told.size())),
            " has ended while a job of its own was under way: nobody waited for the job's Pending");
}

/// As a job sees it that holds a variable by reference, and runs when the variable is gone.
TEST(CommQueueFailures, ATensorThatIsGoneIsAnError) {
  const Tensor gone{.dtype = static_cast<Dtype>(0xAA), .shape = {8}};
  for (const bool gathers : {false, true}) {
    const std::string told = failure_of(2, [&](Comm& comm) {
      Arena arena;
      Reducer reducer(comm, ctx_of(cpu_kernels()), Reduction::Halving, arena, Dtype::F32, 8);
      gathers ? reducer.all_gather(gone, {8, 2}) : reducer.all_reduce(gone);
    });
    EXPECT_NE(told.find("a job reads a tensor that is gone"), std::string::npos) << told;
  }
}

}  // namespace
}  // namespace ladder::test
