// Waiting: in which calls the threads of a process wait. What a process cannot do for itself, to
// notice that the others do not come, a thread beside them does (mpi_watch.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace ladder {

/// While it lives, the calling thread waits.
class Waiting {
 public:
  /// @param call for messages: "all_reduce of 1000 F32"
  explicit Waiting(std::string call);
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;
  ~Waiting();

  /// Which wait of this process it is.
  int64_t number() const { return number_; }
  const std::string& call() const { return call_; }

 private:
  std::string call_;
  int64_t number_;
};

/// The wait of this process that began first.
struct LongestWait {
  int64_t number;
  std::string call;
};
std::optional<LongestWait> longest_wait();

}  // namespace ladder
