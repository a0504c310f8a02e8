// Waiting: the calls in which threads of a process wait. A process that waits cannot notice that
// the others do not come; a thread beside it does (mpi_watch.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "common/comm/call.h"
#include "common/comm/liveness.h"

namespace ladder {

/// The calling thread waits as long as this lives.
class Waiting {
 public:
  /// @param call its text, for messages: "all_reduce of 1000 F32"
  explicit Waiting(std::string call);
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;
  ~Waiting();

  /// The number of this wait in this process.
  int64_t number() const { return number_; }
  const std::string& call() const { return call_; }

 private:
  std::string call_;
  int64_t number_;
};

/// The wait of a thread that looks again and again. If it is long, others can ask for it.
class Polling {
 public:
  /// @param call must live as long as this
  explicit Polling(const Call& call) : call_(call) {}
  /// Called between two looks.
  void pause() {
    constexpr int kLong = 1024;
    if (looks_ == kLong) waiting_.emplace(to_string(call_));
    be_patient(looks_++);
  }
  /// Part of what it waits for has come. What is left is another wait.
  void begin_anew() {
    looks_ = 0;
    waiting_.reset();
  }

 private:
  const Call& call_;
  int looks_ = 0;
  std::optional<Waiting> waiting_;
};

/// The wait in this process that began first.
struct LongestWait {
  int64_t number;
  std::string call;
};
std::optional<LongestWait> longest_wait();

}  // namespace ladder
