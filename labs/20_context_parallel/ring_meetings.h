// Which message of a ring should hide behind the attention of which step.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <utility>
#include <vector>

#include "labs/meetings.h"

namespace ladder::lab {

/// Messages that travel while attention computes.
enum class Message : uint8_t { KeysForward, KeysBackward, Gradients };
constexpr std::array kMessages{"keys in forward", "keys in backward", "gradients of keys"};
using SeenOfAll = std::array<Seen, kMessages.size()>;

constexpr int64_t kNoStep = -1;

/// A message, and the step whose attention should hide it. For the last gradients none is left.
struct Hidden {
  Message what;
  int64_t step;
};

/// The messages of one rank, in their order. Keys of step n + 1 travel during step n. Gradients of
/// step n travel during step n + 1.
inline std::vector<Hidden> messages_of_forward(int64_t cp) {
  std::vector<Hidden> all;
  for (int64_t n = 0; n + 1 < cp; ++n) all.push_back({Message::KeysForward, n});
  return all;
}
inline std::vector<Hidden> messages_of_backward(int64_t cp) {
  std::vector<Hidden> all;
  for (int64_t n = 0; n < cp; ++n) {
    if (n + 1 < cp) all.push_back({Message::KeysBackward, n});
    if (n > 0) all.push_back({Message::Gradients, n + 1 < cp ? n + 1 : kNoStep});
  }
  return all;
}

/// Lets each message of one rank and the step that should hide it wait for each other. A step is
/// two pieces of attention.
class RingMeetings : MeetingPlace {
 public:
  RingMeetings(SeenOfAll& seen, Wire wire) : MeetingPlace(seen, wire) {}

  /// To be called before the student's code, which sends these messages.
  void begin(std::vector<Hidden> messages) {
    const std::lock_guard lock(mutex_);
    messages_ = std::move(messages);
    begun_ = ended_ = pieces_ = 0;
    released_.assign(messages_.size(), false);
  }

  /// Sends a message on the thread that communicates.
  void transfer(const std::function<void()>& body) {
    std::unique_lock lock(mutex_);
    const size_t n = begun_++;
    changed_.notify_all();
    if (n < messages_.size() && messages_[n].step != kNoStep)
      wait(lock, messages_[n].what, "waited for before its product", [&] { return released_[n]; });
    travel(lock, body);
    ++ended_;
    changed_.notify_all();
  }

  /// Computes a piece of attention on the rank's own thread.
  void piece(const std::function<void()>& kernel) {
    std::unique_lock lock(mutex_);
    const int64_t step = pieces_ / 2;
    const bool first = pieces_++ % 2 == 0;
    if (first && !is_slow()) meet(lock, step, ended_);
    lock.unlock();
    kernel();
    lock.lock();
    if (!first && is_slow()) meet(lock, step, begun_);
  }

 private:
  /// Waits until `count` includes the messages that hide behind this step, and lets them go.
  void meet(std::unique_lock<std::mutex>& lock, int64_t step, const size_t& count) {
    for (size_t n = 0; n < messages_.size(); ++n) {
      if (messages_[n].step != step) continue;
      if (!is_slow()) release(n);
      wait(lock, messages_[n].what, "not started before its product", [&] { return count > n; });
      release(n);
    }
  }
  void release(size_t n) {
    released_[n] = true;
    changed_.notify_all();
  }

  std::vector<Hidden> messages_;
  std::vector<bool> released_;
  size_t begun_ = 0, ended_ = 0;
  int64_t pieces_ = 0;
};

/// Where pieces of attention of this thread meet messages. Null: they meet none.
inline thread_local RingMeetings* here = nullptr;

inline void as_piece(const std::function<void()>& kernel) { here ? here->piece(kernel) : kernel(); }
inline Kernels kernels_that_meet() {
  Kernels table = kernels_of("cpu");
  let_meet<&Kernels::attention_piece_forward, as_piece>(table.attention_piece_forward);
  let_meet<&Kernels::attention_piece_backward, as_piece>(table.attention_piece_backward);
  return table;
}

}  // namespace ladder::lab
