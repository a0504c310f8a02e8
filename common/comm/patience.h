// Patience: how long a rank waits for others. All waits have one rule: a rank that has waited
// longer than --timeout ends, and says for whom it waited and in which call. With it all ranks end.
#pragma once

#include <algorithm>
#include <chrono>
#include <stdexcept>
#include <string>
#include <thread>

#include <fmt/format.h>

namespace ladder {

/// A rank that waits looks again and again whether the others have come, and gives up after some
/// looks in vain. Time is counted in looks, because a process that was stopped itself (Ctrl-Z) does
/// not look meanwhile.
struct Patience {
  std::chrono::milliseconds between{1000};  ///< from one look to the next
  int looks = 600;                          ///< 0: it never gives up

  /// One that gives up after `timeout`; 0: never.
  static Patience of(std::chrono::milliseconds timeout) {
    constexpr std::chrono::milliseconds kLeast{1}, kMost{1000};
    if (timeout.count() == 0) return {.looks = 0};
    const auto between = std::clamp(timeout / 8, kLeast, kMost);
    return {.between = between, .looks = static_cast<int>(timeout / between)};
  }
  std::chrono::milliseconds timeout() const { return looks * between; }
  /// "600 s": its timeout.
  std::string text() const {
    return fmt::format("{:.3g} s", static_cast<double>(timeout().count()) / 1e3);
  }
  /// How many seconds a rank that failed gives the one before it to report the same: mpirun takes
  /// one or two to end the others. Ranks with little patience would give up meanwhile.
  int turn() const { return looks == 0 || timeout() > std::chrono::seconds(30) ? 3 : 1; }
};

/// What a rank throws that has waited too long.
class TimedOut : public std::runtime_error {
 public:
  /// @param whom for whom, and in which call: "rank 1 in recv of 5 F32 (from 1)"
  TimedOut(const Patience& patience, const std::string& whom)
      : std::runtime_error(fmt::format("waited {} for {}; --timeout sets how long ranks wait",
                                       patience.text(), whom)) {}
};

/// The wait of a thread that looks again and again.
class Polling {
 public:
  explicit Polling(const Patience& patience) : patience_(patience) {}

  /// Called between two looks. The first pauses are short, because the other side is about to
  /// answer; later ones leave the core to others. @throws TimedOut with whom(), when patience has
  /// run out
  template <class Whom>
  void pause(Whom&& whom) {
    constexpr int kYields = 64, kShort = 1024;
    if (tries_ < kYields) {
      ++tries_;
      return std::this_thread::yield();
    }
    if (tries_ == kYields) last_look_ = Clock::now();
    tries_ = std::min(tries_ + 1, kShort);
    std::this_thread::sleep_for(std::chrono::microseconds(tries_ < kShort ? 10 : 100));
    if (Clock::now() - last_look_ < patience_.between) return;
    last_look_ = Clock::now();
    if (++looks_ == patience_.looks) throw TimedOut(patience_, whom());
  }

 private:
  using Clock = std::chrono::steady_clock;
  Patience patience_;
  int tries_ = 0, looks_ = 0;
  Clock::time_point last_look_;
};

/// Works until the result is destroyed. Some calls of MPI and of NCCL may wait for other ranks
/// forever, and nothing can end them. After the time that `patience` gives, this ends the process,
/// and mpirun then ends all others.
/// @param whom as of TimedOut: "rank 0 in split"
std::jthread end_unless_done(const Patience& patience, const std::string& whom);

}  // namespace ladder
