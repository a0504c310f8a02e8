// A rank that fails with jobs under way ends, and ends the others.

#include "common/comm/comm_queue.h"
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
    } catch (const CheckError& e) {
      EXPECT_EQ(std::string(e.what()), fmt::format("rank {}: the cause", failing));
    }
  }
}

TEST(CommQueueFailures, AForgottenJobIsAnError) {
  EXPECT_THROW(run_threads(2, [](Comm& comm) { leave_job_under_way(comm, [](Pending&) {}); }),
               CheckError);
}

}  // namespace
}  // namespace ladder::test
