// Fiber: a function with a stack of its own. It can stop in the middle and go on later.
#pragma once

#include <cstddef>
#include <functional>

#include <boost/context/detail/fcontext.hpp>

namespace ladder::on_cpu {

/// Boost.Context jumps between stacks. Fiber adds the stack, and tells AddressSanitizer which stack
/// is in use. Fibers are expensive to make and cheap to start again: keep them.
class Fiber {
 public:
  Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;
  ~Fiber();

  /// The next resume() begins `function`, which must not throw, and must live until it is done.
  /// What the fiber was doing is abandoned, and no destructor runs.
  void start(const std::function<void()>& function);
  /// Goes on until the function calls pause() or ends. Called from outside of fibers, by any one
  /// thread.
  void resume();
  /// Returns to resume(). Called from inside this fiber.
  void pause();
  /// Whether the function has ended.
  bool done() const { return done_; }

 private:
  static void enter(boost::context::detail::transfer_t from);

  std::byte* stack_;
  const std::function<void()>* function_ = nullptr;
  bool done_ = true;
  boost::context::detail::fcontext_t inside_ = nullptr;   // where the fiber stopped
  boost::context::detail::fcontext_t outside_ = nullptr;  // where resume() was called
  // For AddressSanitizer: the stack of the caller of resume(), and what AddressSanitizer keeps of
  // both.
  const void* outside_stack_ = nullptr;
  size_t outside_size_ = 0;
  void* outside_frames_ = nullptr;
  void* inside_frames_ = nullptr;
};

}  // namespace ladder::on_cpu
