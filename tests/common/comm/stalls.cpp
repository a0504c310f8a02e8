// A rank that gives no sign of life ends the run, and is named. A rank that only takes long does
// not.

#include <array>
#include <atomic>
#include <chrono>
#include <thread>
#include <unistd.h>

#include "common/comm/comm_queue.h"
#include "common/comm/failure.h"
#include "common/comm/liveness.h"
#include "common/comm/run_ranks.h"
#include "tests/common/comm/on_ranks.h"

namespace ladder::test {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kShort{800};

std::atomic<bool> given_up = false;

void sleep_until_others_give_up() { given_up.wait(false); }

void compute_long() {
  const auto end = Clock::now() + 3 * kShort;
  for (volatile int64_t i = 0; Clock::now() < end;) i = i + 1;
}

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

TEST(Stalls, ARankThatSleepsIsNamed) {
  const std::string why = reason([](Comm& comm) {
    if (comm.rank() == 1) sleep_until_others_give_up();
    comm.barrier();
  });
  EXPECT_TRUE(
      why.starts_with("error: rank 1 gave no sign of life for 0.8 s; rank 0 waits in barrier, "
                      "rank 2 waits in barrier; --timeout"))
      << why;
}

TEST(Stalls, TheCallIsNamed) {
  const std::string why = reason([](Comm& comm) {
    Memory memory;
    const Tensor data = memory.make(Dtype::F32, 10, comm.rank());
    if (comm.rank() == 0) return sleep_until_others_give_up();
    if (comm.rank() == 1) comm.recv(data, 0);
    comm.all_reduce(data);
  });
  EXPECT_NE(why.find("rank 0 gave no sign of life"), std::string::npos) << why;
  EXPECT_NE(why.find("rank 1 waits in recv of 10 F32 (from 0)"), std::string::npos) << why;
  EXPECT_NE(why.find("rank 2 waits in all_reduce of 10 F32"), std::string::npos) << why;
}

// The rank's own thread waits for the queue, which waits for rank 1.
TEST(Stalls, WhoWaitsForItsQueueWaits) {
  const std::string why = reason([](Comm& comm) {
    const std::unique_ptr<Comm> beside = comm.split(0, comm.rank());
    CommQueue queue(*beside);
    if (comm.rank() == 1) return sleep_until_others_give_up();
    queue.run([&] { beside->barrier(); }).wait();
  });
  EXPECT_TRUE(why.starts_with("error: rank 1 gave no sign of life")) << why;
}

TEST(Stalls, ARankThatComputesIsWaitedFor) {
  EXPECT_EQ(reason([](Comm& comm) {
              if (comm.rank() == 1) compute_long();
              comm.barrier();
            }),
            "");
}

// Its own thread only waits.
TEST(Stalls, ARankWhoseHelperComputesIsWaitedFor) {
  EXPECT_EQ(reason([](Comm& comm) {
              if (comm.rank() == 1) start_helper(compute_long).get();
              comm.barrier();
            }),
            "");
}

TEST(Stalls, ARankWhoseHelperSleepsIsNamed) {
  const std::string why = reason([](Comm& comm) {
    if (comm.rank() == 1) start_helper(sleep_until_others_give_up).get();
    comm.barrier();
  });
  EXPECT_TRUE(why.starts_with("error: rank 1 gave no sign of life")) << why;
}

// The program that reads what a rank prints may pause.
TEST(Stalls, ARankThatPrintsIsWaitedFor) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe(ends.data()), 0);
  std::jthread reader([&] {
    std::this_thread::sleep_for(3 * kShort);
    std::vector<char> bytes(1 << 20);
    while (::read(ends[0], bytes.data(), bytes.size()) > 0) continue;
  });
  EXPECT_EQ(reason([&](Comm& comm) {
              const std::vector<char> more_than_a_pipe_holds(1 << 20);
              if (comm.rank() == 1) {
                EXPECT_GT(::write(ends[1], more_than_a_pipe_holds.data(), 1 << 20), 0);
              }
              comm.barrier();
            }),
            "");
  ::close(ends[1]);
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

// Nobody can end a thread, so the process ends.
TEST(StallsDeathTest, ARankThatNeverWakesUpEndsTheProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const RankBody body = [](Comm& comm) {
    while (comm.rank() == 1) std::this_thread::sleep_for(kShort);
    comm.barrier();
  };
  EXPECT_EXIT(run_threads(3, body, kShort), ::testing::ExitedWithCode(1),
              "error: rank 1 gave no sign of life for 0.8 s; rank 0 waits in barrier");
}

// ---- the verdict -----------------------------------------------------------------------------

constexpr Patience kTwoLooks{.between = milliseconds(500), .looks = 2};

/// A rank in `call`; it lives.
RankReport waiting(int rank, int waited, std::string_view call) {
  RankReport report{.rank = rank, .waited = waited};
  report.set_call(call);
  return report;
}

std::string verdict(const std::vector<RankReport>& heard, int ranks,
                    Patience patience = kTwoLooks) {
  return reason_to_give_up(heard, ranks, patience).value_or("go on");
}

TEST(Verdict, NobodyGivesUpEarly) {
  EXPECT_EQ(verdict({waiting(0, 1, "a"), {.rank = 1, .silent = 5}}, 2), "go on");
  EXPECT_EQ(verdict({waiting(0, 5, "a"), {.rank = 1, .silent = 1}}, 2), "go on");
  EXPECT_EQ(verdict({{.rank = 0, .silent = 5}, {.rank = 1}}, 2), "go on") << "nobody waits";
  EXPECT_EQ(verdict({waiting(0, 5, "a"), {.rank = 1, .silent = 5}}, 2, {.looks = 0}), "go on");
}

TEST(Verdict, WhoIsSilentOrUnheardIsMissing) {
  const std::string why = "gave no sign of life for 1 s; rank 0 waits in a; --timeout";
  EXPECT_TRUE(
      verdict({waiting(0, 2, "a"), {.rank = 1, .silent = 2}}, 2).starts_with("rank 1 " + why));
  EXPECT_TRUE(
      verdict({waiting(0, 2, "a"), {.rank = 1, .unheard = 2}}, 3).starts_with("rank 1 " + why));
  EXPECT_TRUE(verdict({waiting(0, 2, "a"), {.rank = 1, .unheard = 2}, {.rank = 2, .silent = 3}}, 3)
                  .starts_with("ranks 1, 2 " + why));
}

TEST(Verdict, WhoIsOnAnotherMachineIsNamedWithIt) {
  RankReport lost{.rank = 1, .unheard = 2};
  lost.host = {"b"};
  const std::string why = verdict({waiting(0, 2, "a"), lost}, 3);
  EXPECT_TRUE(why.starts_with("rank 1 on b gave no sign of life for 1 s; rank 0 waits")) << why;
}

TEST(Verdict, WhoIsDoneOrDebuggedIsNotMissing) {
  EXPECT_EQ(verdict({waiting(0, 5, "a"), {.rank = 1, .unheard = 9, .debugged = true}}, 2), "go on");
  EXPECT_EQ(verdict({waiting(0, 5, "a"), {.rank = 1, .unheard = 9, .over = true}, {.rank = 2}}, 3),
            "go on");
}

TEST(Verdict, AllWaitInVain) {
  const std::vector<RankReport> heard{waiting(0, 2, "a"), waiting(1, 3, "b")};
  EXPECT_TRUE(verdict(heard, 2).starts_with(
      "the ranks wait for each other for 1 s: rank 0 waits in a, rank 1 waits in b; --timeout"));
  EXPECT_EQ(verdict(heard, 3), "go on") << "of rank 2 nothing is known";
  EXPECT_TRUE(verdict({waiting(0, 2, "a"), {.rank = 1, .over = true}}, 2)
                  .starts_with("the ranks wait for each other for 1 s: rank 0 waits in a; "));
}

TEST(Verdict, ManyRanksAreCutShort) {
  std::vector<RankReport> heard{{.rank = 0, .silent = 2}};
  for (int rank = 1; rank < 100; ++rank) heard.push_back(waiting(rank, 2, std::string(500, 'x')));
  EXPECT_LT(verdict(heard, 100).size(), 2000U);
}

}  // namespace
}  // namespace ladder::test
