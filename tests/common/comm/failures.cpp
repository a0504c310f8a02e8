// A run ends if a rank throws, if ranks disagree, or if they wait for each other.

#include <chrono>
#include <new>
#include <thread>

#include "common/comm/comm_queue.h"
#include "common/comm/failure.h"
#include "common/comm/reduction.h"
#include "common/comm/run_ranks.h"
#include "common/error.h"
#include "kernels/kernels.h"
#include "tests/common/comm/on_ranks.h"

namespace ladder::test {
namespace {

/// Many ways to wait for rank 1.
const std::vector<RankBody> kWaits = {
    [](Comm& comm) { comm.barrier(); },
    [](Comm& comm) { comm.all_reduce(Memory().make(Dtype::F32, 100, 0)); },
    [](Comm& comm) { comm.broadcast(Memory().make(Dtype::F32, 100, 0), 1); },
    [](Comm& comm) { comm.recv(Memory().make(Dtype::F32, 100), 1); },
    [](Comm& comm) { comm.send(Memory().make(Dtype::F32, 100), 1); },
    [](Comm& comm) { comm.split(0, 0); },
    [](Comm& comm) {
      Memory memory;
      Collectives collectives(comm, ctx_of(ref_kernels()), Reduction::Halving, memory.arena(),
                              Dtype::F32, 100);
      collectives.all_reduce(memory.make(Dtype::F32, 100, 0));
    },
};

// A rank that is left waiting ends the test, too: at the time limit of ctest.
TEST(Failures, ARankThatThrowsEndsAll) {
  for (const RankBody& wait : kWaits) {
    const Failure end = failure_of(4, [&](Comm& comm) {
      if (comm.rank() != 1) {
        // Twice: a run that has failed stays so.
        EXPECT_THROW(wait(comm), Aborted);
        wait(comm);
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      throw UserError("no such file");
    });
    EXPECT_EQ(end.line, "error: rank 1: no such file");
  }
}

TEST(Failures, TheFirstErrorIsToldWithItsStatus) {
  const auto failure_of_one = [](const std::function<void()>& fail) {
    return failure_of(3, [&](Comm& comm) {
      if (comm.rank() == 2) fail();
      comm.barrier();
    });
  };
  const Failure broken = failure_of_one([] { throw CheckError("broken"); });
  EXPECT_EQ(broken.line, "internal error: rank 2: broken");
  EXPECT_EQ(broken.status, 1);
  const Failure memory = failure_of_one([] { throw std::bad_alloc(); });
  EXPECT_TRUE(memory.line.starts_with("error: rank 2: no memory beside the tensors; a smaller"));
  EXPECT_EQ(memory.status, 2);
  const Failure disk = failure_of_one([] { throw NotWritten(1, "no room"); });
  EXPECT_EQ(disk.line, "error: rank 1: no room") << "whoever throws it";
  EXPECT_EQ(disk.status, kNotDone);
  EXPECT_THROW(run_threads(1, [](Comm&) { throw UserError("alone"); }), UserError);
}

TEST(Failures, NobodyReadsWhatHasBeenLetGo) {
  // Rank 3 fails at any moment of the others' operations, whose tensors die with the exception.
  for (int trial = 0; trial < 20; ++trial) {
    const Failure end = failure_of(4, [&](Comm& comm) {
      const std::unique_ptr<Comm> group = comm.split(comm.rank() / 3, 0);
      if (comm.rank() == 3) {
        std::this_thread::sleep_for(std::chrono::microseconds(300 * trial));
        throw CheckError("now");
      }
      const int next = (comm.rank() + 1) % 3, before = (comm.rank() + 2) % 3;
      while (true) {
        Memory memory;
        const Tensor data = memory.make(Dtype::F32, 500'000);
        const Tensor other = memory.make(Dtype::F32, 500'000);
        if (trial % 2)
          group->all_reduce(data);
        else
          group->exchange(data, next, other, before);
      }
    });
    EXPECT_EQ(end.line, "internal error: rank 3: now");
  }
}

TEST(Failures, AMessageIsCopiedWholeOrNotAtAll) {
  // Long enough that rank 2 fails in the middle of a copy, in some trial.
  constexpr int64_t kBytes = 1 << 25;
  for (int trial = 0; trial < 8; ++trial) {
    const Failure end = failure_of(3, [&](Comm& comm) {
      Memory memory;
      const Tensor data = memory.make(Dtype::U8, kBytes);
      auto* bytes = static_cast<uint8_t*>(data.ptr);
      if (comm.rank() == 1) std::fill_n(bytes, data.size(), uint8_t{1});
      comm.barrier();
      if (comm.rank() == 2) {
        std::this_thread::sleep_for(std::chrono::milliseconds(2 * trial));
        throw CheckError("now");
      }
      if (comm.rank() == 1) return comm.send(data, 0);
      try {
        comm.recv(data, 1);
      } catch (const Aborted&) {
      }
      EXPECT_EQ(bytes[0], bytes[data.size() - 1]);
    });
    EXPECT_EQ(end.line, "internal error: rank 2: now");
  }
}

TEST(Failures, APendingMessageIsTakenBack) {
  const Failure end = failure_of(2, [](Comm& comm) {
    Memory memory;
    Pending pending = comm.irecv(memory.make(Dtype::F32, 10), 1 - comm.rank());
    throw CheckError("unwinds over it");
  });
  EXPECT_TRUE(end.line.ends_with("unwinds over it")) << end.line;
}

/// A run of two ranks whose calls do not fit, and what is said of it.
struct Misfit {
  RankBody body;
  std::vector<std::string> says;
};

void reduce(Comm& comm, Reduction reduction) {
  Memory memory;
  Collectives collectives(comm, ctx_of(ref_kernels()), reduction, memory.arena(), Dtype::F32, 64);
  collectives.all_reduce(memory.make(Dtype::F32, 64, 0));
}

const std::vector<Misfit> kMisfits = {
    {[](Comm& comm) { comm.all_reduce(Memory().make(Dtype::F32, 10 + comm.rank(), 0)); },
     {"disagree", "rank 0 in all_reduce of 10 F32", "rank 1 in all_reduce of 11 F32"}},
    {[](Comm& comm) {
       comm.broadcast(Memory().make(comm.rank() ? Dtype::I32 : Dtype::F32, 4, 0), 1);
     },
     {"rank 0 in broadcast of 4 F32 (from 1)", "rank 1 in broadcast of 4 I32 (from 1)"}},
    {[](Comm& comm) {
       if (comm.rank() == 1) comm.barrier();
       comm.all_reduce(Memory().make(Dtype::F32, 4, 0));
     },
     {"rank 0 in all_reduce of 4 F32", "rank 1 in barrier"}},
    {[](Comm& comm) {
       if (comm.rank() == 0) comm.barrier();
       comm.split(0, 0);
     },
     {"rank 0 in barrier", "rank 1 in split"}},
    {[](Comm& comm) { reduce(comm, comm.rank() ? Reduction::Halving : Reduction::Ring); },
     {"rank 0 in all_reduce of 64 F32 (ring)", "rank 1 in all_reduce of 64 F32 (halving)"}},
    {[](Comm& comm) {
       if (comm.rank() == 0) reduce(comm, Reduction::Halving);
       comm.broadcast(Memory().make(Dtype::F32, 64, 0), 0);
     },
     {"wait for each other", "rank 0 waits in all_reduce of 64 F32 (halving)",
      "rank 1 waits in broadcast of 64 F32"}},
    {[](Comm& comm) {
       if (comm.rank() == 0) comm.barrier();
     },
     {"rank 0 waits in barrier", "rank 1 has returned"}},
    {[](Comm& comm) {
       if (comm.rank() == 0) comm.send(Memory().make(Dtype::F32, 5, 0), 1);
       if (comm.rank() == 1) comm.recv(Memory().make(Dtype::F32, 6), 0);
     },
     {"disagree", "rank 0 in send of 5 F32 (to 1)", "rank 1 in recv of 6 F32 (from 0)"}},
    {[](Comm& comm) {
       Memory memory;
       const Tensor data = memory.make(Dtype::F32, 5, 0);
       comm.send(data, 1 - comm.rank());
       comm.recv(data, 1 - comm.rank());
     },
     {"wait for each other", "rank 0 waits in send", "rank 1 waits in send"}},
};

TEST(Failures, CallsThatDoNotFitAreReported) {
  for (const auto& [body, says] : kMisfits) {
    const std::string message = failure_of(2, body).line;
    for (const std::string& part : says)
      EXPECT_NE(message.find(part), std::string::npos) << part << " is not in: " << message;
  }
}

// A rank that fails with jobs of its queue under way ends, and ends the others.

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
  for (int failing : {0, 1, 2})
    EXPECT_EQ(failure_of(3,
                         [&](Comm& comm) {
                           leave_job_under_way(comm, [&](Pending& pending) {
                             if (comm.rank() == failing) throw CheckError("the cause");
                             if (comm.rank() == 1) return pending.wait();
                             EXPECT_THROW(pending.wait(), Aborted);
                           });
                         })
                  .line,
              fmt::format("internal error: rank {}: the cause", failing));
}

TEST(CommQueueFailures, AForgottenJobIsAnError) {
  const std::string told =
      failure_of(2, [](Comm& comm) { leave_job_under_way(comm, [](Pending&) {}); }).line;
  EXPECT_EQ(told.substr(std::min<size_t>(22, told.size())),
            " has ended while a job of its own was under way: nobody waited for the job's Pending");
}

/// A job that holds a variable by reference, and runs when the variable is gone, sees such a
/// tensor.
TEST(CommQueueFailures, ATensorThatIsGoneIsAnError) {
  const Tensor gone{.dtype = static_cast<Dtype>(0xAA), .shape = {8}};
  for (const bool gathers : {false, true}) {
    const std::string told =
        failure_of(2, [&](Comm& comm) {
          Arena arena;
          Collectives collectives(comm, ctx_of(cpu_kernels()), Reduction::Halving, arena,
                                  Dtype::F32, 8);
          gathers ? collectives.all_gather(gone, {8, 2}) : collectives.all_reduce(gone);
        }).line;
    EXPECT_NE(told.find("a job reads a tensor that is gone"), std::string::npos) << told;
  }
}

}  // namespace
}  // namespace ladder::test
