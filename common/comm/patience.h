// What a thread does between two looks at what others bring about, where it cannot block.
#pragma once

#include <chrono>
#include <thread>

namespace ladder {

/// At first the other side is about to answer; later there is time, and others want the core.
/// @param looks so far
inline void be_patient(int looks) {
  if (looks < 64)
    std::this_thread::yield();
  else
    std::this_thread::sleep_for(std::chrono::microseconds(looks < 1024 ? 10 : 100));
}

}  // namespace ladder
