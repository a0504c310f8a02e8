// How long a thread waits for others.
#pragma once

#include <algorithm>
#include <chrono>
#include <thread>

namespace ladder {

/// Called between two looks by a thread that cannot block. At first the other side is about to
/// answer. Later there is time, and other threads want the core.
/// @param looks how many there were so far
inline void be_patient(int looks) {
  if (looks < 64)
    std::this_thread::yield();
  else
    std::this_thread::sleep_for(std::chrono::microseconds(looks < 1024 ? 10 : 100));
}

/// How often a waiting thread looks for signs of life, and after how many looks in vain it gives
/// up. Time is counted in looks, because a process that was itself stopped (Ctrl-Z) has not looked.
struct Patience {
  std::chrono::milliseconds between{1000};
  int looks = 60;  ///< 0: never gives up

  /// Gives up after `timeout`; 0: never.
  static Patience of(std::chrono::milliseconds timeout) {
    constexpr std::chrono::milliseconds kLeast{1}, kMost{1000};
    if (timeout.count() == 0) return {.looks = 0};
    const auto between = std::clamp(timeout / 8, kLeast, kMost);
    return {.between = between, .looks = static_cast<int>(timeout / between)};
  }
  std::chrono::milliseconds timeout() const { return looks * between; }
};

}  // namespace ladder
