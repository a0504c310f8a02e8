#include "common/comm/waiting.h"

#include <mutex>
#include <vector>

namespace ladder {
namespace {

/// The waits of the whole process, in the order in which they began.
struct All {
  std::mutex mutex;
  std::vector<const Waiting*> waits;
  int64_t begun = 0;
};
All& all() {
  static All all;
  return all;
}

}  // namespace

Waiting::Waiting(std::string call) : call_(std::move(call)) {
  const std::lock_guard lock(all().mutex);
  number_ = all().begun++;
  all().waits.push_back(this);
}

Waiting::~Waiting() {
  const std::lock_guard lock(all().mutex);
  std::erase(all().waits, this);
}

std::optional<LongestWait> longest_wait() {
  const std::lock_guard lock(all().mutex);
  if (all().waits.empty()) return std::nullopt;
  const Waiting& first = *all().waits.front();
  return LongestWait{first.number(), first.call()};
}

}  // namespace ladder
