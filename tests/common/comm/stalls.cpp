// A wait that is longer than the timeout ends the run. Who has waited is named, and who does not
// come.

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <exception>
#include <thread>
#include <unistd.h>

#include <sys/wait.h>

#include "common/comm/comm_queue.h"
#include "common/comm/failure.h"
#include "common/comm/patience.h"
#include "common/comm/run_ranks.h"
#include "tests/common/comm/on_ranks.h"

namespace ladder::test {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kShort{800};

std::atomic<bool> given_up = false;

void sleep_until_others_give_up() { given_up.wait(false); }

/// Why the run gives up; empty: it does not.
std::string reason(const RankBody& body, milliseconds timeout = kShort) {
  given_up = false;
  const auto tell_when_given_up = [&](Comm& comm) {
    try {
      body(comm);
    } catch (const Aborted&) {
      given_up = true;
      given_up.notify_all();
      throw;
    }
  };
  return failure_of(3, tell_when_given_up, timeout).line;
}

/// What is said if rank `waits` is the first that has waited too long.
std::string line(int waits, const std::string& call, const std::string& others) {
  return fmt::format("error: rank {}: waited 0.8 s in {}{}; --timeout sets how long ranks wait",
                     waits, call, others);
}

TEST(Stalls, ARankThatDoesNotComeIsNamed) {
  const std::string why = reason([](Comm& comm) {
    if (comm.rank() == 1) sleep_until_others_give_up();
    comm.barrier();
  });
  EXPECT_TRUE(why == line(0, "barrier", "; rank 1 is in no call; rank 2 waits in barrier") ||
              why == line(2, "barrier", "; rank 0 waits in barrier; rank 1 is in no call"))
      << why;
}

TEST(Stalls, CallAndPeerAreNamed) {
  const std::string why = reason([](Comm& comm) {
    Memory memory;
    const Tensor data = memory.make(Dtype::F32, 10, comm.rank());
    if (comm.rank() == 0) return sleep_until_others_give_up();
    if (comm.rank() == 1) comm.recv(data, 0);
    comm.all_reduce(data);
  });
  const std::string recv = "recv of 10 F32 (from 0)", sum = "all_reduce of 10 F32";
  EXPECT_TRUE(why == line(1, recv, "; rank 0 is in no call; rank 2 waits in " + sum) ||
              why == line(2, sum, "; rank 0 is in no call; rank 1 waits in " + recv))
      << why;
}

// The rank's own thread waits for the queue, which waits for rank 1.
TEST(Stalls, WhoWaitsForItsQueueWaits) {
  const std::string why = reason([](Comm& comm) {
    const std::unique_ptr<Comm> beside = comm.split(0, comm.rank());
    CommQueue queue(*beside);
    if (comm.rank() == 1) return sleep_until_others_give_up();
    queue.run([&] { beside->barrier(); }).wait();
  });
  EXPECT_TRUE(why.starts_with("error: rank ") && why.find("in no call") != why.npos) << why;
}

TEST(Stalls, ZeroWaitsForEver) {
  EXPECT_EQ(reason(
                [](Comm& comm) {
                  if (comm.rank() == 1) std::this_thread::sleep_for(2 * kShort);
                  comm.barrier();
                },
                milliseconds(0)),
            "");
}

/// Stops a process that calls work() for three times as long as ranks wait. @return its status
int status_of_stopped(const std::function<void()>& work) {
  const pid_t child = ::fork();
  if (child == 0) {
    try {
      work();
    } catch (const std::exception& e) {
      tell(e.what());
      std::_Exit(1);
    }
    std::_Exit(0);
  }
  std::this_thread::sleep_for(kShort / 4);
  ::kill(child, SIGSTOP);
  std::this_thread::sleep_for(3 * kShort);
  ::kill(child, SIGCONT);
  int status = 0;
  ::waitpid(child, &status, 0);
  return status;
}

// As by Ctrl-Z and `fg`. What others were to do meanwhile was stopped, too.
TEST(Stalls, TimeInWhichAllAreStoppedDoesNotCount) {
  EXPECT_EQ(status_of_stopped([] {
              run_threads(
                  2,
                  [](Comm& comm) {
                    for (int i = 0; comm.rank() == 1 && i < 8; ++i)
                      std::this_thread::sleep_for(kShort / 16);
                    comm.barrier();
                  },
                  kShort);
            }),
            0);
  EXPECT_EQ(status_of_stopped([] {
              const auto begin = std::chrono::steady_clock::now();
              Polling polling(Patience::of(kShort));
              while (std::chrono::steady_clock::now() < begin + kShort / 2)
                polling.pause([] { return "nobody"; });
            }),
            0);
}

TEST(Stalls, WhoLooksAgainAndAgainGivesUp) {
  const auto poll = [](milliseconds timeout, milliseconds end) {
    const auto begin = std::chrono::steady_clock::now();
    Polling polling(Patience::of(timeout));
    while (std::chrono::steady_clock::now() < begin + end)
      polling.pause([] { return "rank 1 in barrier"; });
  };
  EXPECT_NO_THROW(poll(milliseconds(0), kShort));
  try {
    poll(kShort, 100 * kShort);
    FAIL() << "waits for ever";
  } catch (const TimedOut& e) {
    EXPECT_STREQ(e.what(),
                 "waited 0.8 s for rank 1 in barrier; --timeout sets how long ranks wait");
  }
}

// Nobody can end a thread, so the process ends.
TEST(StallsDeathTest, ARankThatNeverWakesUpEndsTheProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const RankBody body = [](Comm& comm) {
    while (comm.rank() == 1) std::this_thread::sleep_for(kShort);
    comm.barrier();
  };
  EXPECT_EXIT(run_threads(3, body, kShort), ::testing::ExitedWithCode(1),
              "error: rank [02]: waited 0.8 s in barrier; .*rank 1 is in no call");
}

}  // namespace
}  // namespace ladder::test
