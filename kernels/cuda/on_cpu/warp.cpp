// Votes, shuffles and the barrier of a warp. Each is one exchange between its lanes.
#include <cuda_runtime.h>

#include "kernels/check.h"

namespace ladder::on_cpu {
namespace {

void tell_of_meeting(const Lanes& lanes) {
  if (!watcher) return;
  unsigned mask = 0;
  for (int i = 0; i < kLanes; ++i)
    if (lanes[static_cast<size_t>(i)]) mask |= 1u << i;
  watcher->sync_warp(running_thread() - lane_of_thread(), mask);
}

struct Vote {
  bool mine;
  unsigned result;
};

void count_votes(const Lanes& lanes) {
  unsigned result = 0;
  for (int i = 0; i < kLanes; ++i) {
    const auto* vote = static_cast<const Vote*>(lanes[static_cast<size_t>(i)]);
    if (vote && vote->mine) result |= 1u << i;
  }
  for (void* lane : lanes)
    if (lane) static_cast<Vote*>(lane)->result = result;
}

struct Shuffle {
  uint64_t mine;
  int from;
  uint64_t result;
};

void hand_over(const Lanes& lanes) {
  for (void* lane : lanes) {
    if (!lane) continue;
    auto& shuffle = *static_cast<Shuffle*>(lane);
    const bool legal = shuffle.from >= 0 && shuffle.from < kLanes;
    const void* source = legal ? lanes[static_cast<size_t>(shuffle.from)] : nullptr;
    if (!source) fail(fmt::format("a shuffle reads lane {}, which takes no part", shuffle.from));
    shuffle.result = static_cast<const Shuffle*>(source)->mine;
  }
}

}  // namespace

void __syncwarp(unsigned mask, Where where) {
  int nothing = 0;
  meet_warp("__syncwarp", mask, &nothing, tell_of_meeting, where);
}

unsigned __ballot_sync(unsigned mask, bool vote, Where where) {
  Vote mine{.mine = vote, .result = 0};
  meet_warp("a vote", mask, &mine, count_votes, where);
  return mine.result;
}

uint64_t shuffle(const char* name, unsigned mask, uint64_t bits, int from, Where where) {
  Shuffle mine{.mine = bits, .from = from, .result = 0};
  meet_warp(name, mask, &mine, hand_over, where);
  return mine.result;
}

void tell_of_atomic(const void* at, int64_t bytes, bool is_float) {
  if (!watcher) return;
  tell(at, bytes, Access::Atomic, __builtin_return_address(0));
  if (is_float) watcher->float_atomic();
}

}  // namespace ladder::on_cpu
