// Waiting: in which calls the threads of a process wait. What a process cannot do for itself, to
// notice that the others do not come, a thread beside them does (mpi_watch.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "common/comm/call.h"
#include "common/comm/liveness.h"

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

/// Of a thread that looks again and again. A wait that is long others can ask for.
class Polling {
 public:
  /// @param call must live as long
  explicit Polling(const Call& call) : call_(call) {}
  /// Between two looks.
  void pause() {
    constexpr int kLong = 1024;
    if (looks_ == kLong) waiting_.emplace(to_string(call_));
    be_patient(looks_++);
  }

 private:
  const Call& call_;
  int looks_ = 0;
  std::optional<Waiting> waiting_;
};

/// The wait of this process that began first.
struct LongestWait {
  int64_t number;
  std::string call;
};
std::optional<LongestWait> longest_wait();

}  // namespace ladder
