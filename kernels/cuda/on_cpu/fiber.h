// Fiber: a function that can stop in the middle and go on later, with a stack of its own.
#pragma once

#include <cstddef>
#include <functional>

#include <boost/context/detail/fcontext.hpp>

namespace ladder::on_cpu {

/// Boost.Context jumps between stacks; this adds the stack, and tells AddressSanitizer which one
/// is in use. Fibers are expensive to make and cheap to start again: keep them.
class Fiber {
 public:
  Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;
  ~Fiber();

  /// The next resume() begins `function`, which throws nothing and lives until it is done. What
  /// the fiber was in the middle of is abandoned: no destructor runs.
  void start(const std::function<void()>& function);
  /// Goes on until the function calls pause() or ends. From outside of fibers, by any one thread.
  void resume();
  /// Back to resume(). From inside of this fiber.
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
  // For AddressSanitizer: the stack of whoever called resume(), and what it keeps of both.
  const void* outside_stack_ = nullptr;
  size_t outside_size_ = 0;
  void* outside_frames_ = nullptr;
  void* inside_frames_ = nullptr;
};

}  // namespace ladder::on_cpu
