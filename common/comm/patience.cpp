#include "common/comm/patience.h"

#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <mutex>

#include "common/comm/failure.h"
#include "common/comm/run_ranks.h"

namespace ladder {

std::jthread end_unless_done(const Patience& patience, const std::string& whom) {
  return std::jthread([patience, whom](const std::stop_token& stop) {
    std::mutex mutex;
    std::unique_lock lock(mutex);
    std::condition_variable_any changed;
    for (int looks = 0; patience.looks == 0 || looks < patience.looks; ++looks) {
      changed.wait_for(lock, stop, patience.between, [&] { return stop.stop_requested(); });
      if (stop.stop_requested()) return;
    }
    wait_for_turn(3 * launched_rank());  // mpirun takes a second or two to end the others
    if (stop.stop_requested()) return;
    tell(fmt::format("error: {}: {}", rank_name(launched_rank()), TimedOut(patience, whom).what()));
    std::fflush(nullptr);
    std::_Exit(1);
  });
}

}  // namespace ladder
