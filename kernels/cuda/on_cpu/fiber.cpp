#include "kernels/cuda/on_cpu/fiber.h"

#include <sys/mman.h>

#include "kernels/check.h"

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#else
namespace {
// Without the sanitizer there is nothing to tell.
void __sanitizer_start_switch_fiber(void**, const void*, size_t) {}
void __sanitizer_finish_switch_fiber(void*, const void**, size_t*) {}
void __asan_unpoison_memory_region(const void*, size_t) {}
}  // namespace
#endif

namespace ladder::on_cpu {
namespace {

namespace context = boost::context::detail;

/// Only touched pages take memory. The lowest page stays closed, so running over the end is a
/// crash. Pages of arm64 have 4, 16 or 64 KiB.
constexpr size_t kPage = 64 << 10;
constexpr size_t kStack = 256 << 10;

}  // namespace

Fiber::Fiber() {
  void* memory = mmap(nullptr, kPage + kStack, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(memory != MAP_FAILED, "no memory for the stack of a device thread");
  stack_ = static_cast<std::byte*>(memory) + kPage;
  CHECK(mprotect(stack_, kStack, PROT_READ | PROT_WRITE) == 0, "no stack for a device thread");
}

Fiber::~Fiber() {
  __asan_unpoison_memory_region(stack_, kStack);
  munmap(stack_ - kPage, kPage + kStack);
}

void Fiber::start(const std::function<void()>& function) {
  // If the last function is done, the fiber waits in enter() for the next function.
  if (!done_ || !inside_) {
    __asan_unpoison_memory_region(stack_, kStack);
    inside_ = context::make_fcontext(stack_ + kStack, kStack, enter);
    inside_frames_ = nullptr;
  }
  function_ = &function;
  done_ = false;
}

void Fiber::resume() {
  __sanitizer_start_switch_fiber(&outside_frames_, stack_, kStack);
  inside_ = context::jump_fcontext(inside_, this).fctx;
  __sanitizer_finish_switch_fiber(outside_frames_, nullptr, nullptr);
}

void Fiber::pause() {
  __sanitizer_start_switch_fiber(&inside_frames_, outside_stack_, outside_size_);
  outside_ = context::jump_fcontext(outside_, nullptr).fctx;
  __sanitizer_finish_switch_fiber(inside_frames_, &outside_stack_, &outside_size_);
}

void Fiber::enter(context::transfer_t from) {
  auto& self = *static_cast<Fiber*>(from.data);
  __sanitizer_finish_switch_fiber(nullptr, &self.outside_stack_, &self.outside_size_);
  self.outside_ = from.fctx;
  while (true) {
    (*self.function_)();
    self.done_ = true;
    self.pause();
  }
}

}  // namespace ladder::on_cpu
