// Liveness: how long ranks wait for one another, what tells a rank that takes long from one that
// has stalled, and when it is time to give up.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <ctime>
#include <future>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

namespace ladder {

/// Between two looks, where it cannot block. At first the other side is about to answer; later
/// there is time, and others want the core.
/// @param looks so far
inline void be_patient(int looks) {
  if (looks < 64)
    std::this_thread::yield();
  else
    std::this_thread::sleep_for(std::chrono::microseconds(looks < 1024 ? 10 : 100));
}

/// How often who waits looks for signs of life, and after how many looks in vain it gives up. A
/// process that was stopped itself (Ctrl-Z) has not looked: so time is counted in looks.
struct Patience {
  std::chrono::milliseconds between{1000};
  int looks = 60;  ///< 0: it never gives up

  /// One that gives up after `timeout`; 0: never.
  static Patience of(std::chrono::milliseconds timeout) {
    constexpr std::chrono::milliseconds kLeast{1}, kMost{1000};
    if (timeout.count() == 0) return {.looks = 0};
    const auto between = std::clamp(timeout / 8, kLeast, kMost);
    return {.between = between, .looks = static_cast<int>(timeout / between)};
  }
  std::chrono::milliseconds timeout() const { return looks * between; }
  /// How many seconds a rank that failed gives the one before it to report the same: mpirun takes
  /// one or two to end the others. But a rank that waits gives no sign of life, and ranks with
  /// little patience would report that.
  int turn() const { return looks == 0 || timeout() > std::chrono::seconds(30) ? 3 : 1; }
};

/// Whether a thread does anything. It computes if it uses a core, or waits for one; it may wait for
/// a file, as when it saves a checkpoint, or for whoever reads what it prints. A thread that
/// sleeps, or blocks on a lock, gives no sign of life, unless a helper of it does.
class Pulse {
 public:
  /// Of the calling thread.
  Pulse();
  /// Since the last call. True, too, where the system does not tell.
  bool beats();

 private:
  bool beats_without_helpers();

  int thread_;
  clockid_t clock_{};
  int64_t used_ns_ = 0;
};

/// As long as this lives, the calling thread is a helper of another one.
class Helper {
 public:
  /// @param helped thread ID of the other one
  explicit Helper(int helped);
  Helper(const Helper&) = delete;
  Helper& operator=(const Helper&) = delete;
  ~Helper();

 private:
  friend class Pulse;
  int helped_;
  Pulse pulse_{};
};

/// Calls work() in a helper of the calling thread, which may then wait for the future as long as
/// the helper does anything.
template <class Work>
auto start_helper(Work work) {
  return std::async(std::launch::async, [helped = ::gettid(), work = std::move(work)] {
    const Helper helper(helped);
    return work();
  });
}

/// Whether a debugger holds this process: then who waits is patient.
bool under_debugger();

/// Of one rank. Times are counted in looks.
struct RankReport {
  int32_t rank = 0;
  int32_t unheard = 0;           ///< since it was last heard of
  int32_t silent = 0;            ///< since it last gave a sign of life
  int32_t waited = 0;            ///< in the call that it has waited in longest
  bool over = false;             ///< it needs nothing more of the others
  bool debugged = false;         ///< its silence means nothing
  std::array<char, 128> call{};  ///< that it waits in, if it does; cut where it is too long
  std::array<char, 64> host{};   ///< empty: all are on one machine

  void set_call(std::string_view text);
};

/// Why to give up, if it is time to: a rank has waited too long, and another has given no sign of
/// life for as long, or all wait. Names them, and in which calls they wait.
/// @param heard the ranks that there are reports of, of `ranks`
std::optional<std::string> reason_to_give_up(std::span<const RankReport> heard, int ranks,
                                             const Patience& patience);

/// "60 s": its timeout.
std::string seconds_text(const Patience& patience);

/// "0, 2, 3"; of many the first few.
std::string rank_list(const std::vector<int>& ranks);

}  // namespace ladder
