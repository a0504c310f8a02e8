// A table of kernels that counts what is called, for checks that count work, or only want a
// context.
#pragma once

#include <cstdint>

#include "common/run/backend.h"
#include "kernels/arena.h"
#include "kernels/kernels.h"

namespace ladder::lab {

/// The kernels of the backend cpu, and a context of one thread that calls them.
class CountedKernels {
 public:
  CountedKernels() : table_(kernels_of("cpu")) {
    calls_ = elements_ = 0;
    ctx_.kernels = &table_;
    ctx_.scratch = arena_.alloc(Mem::Workspace, "scratch", Dtype::U8, {1, table_.scratch_bytes});
  }
  CountedKernels(const CountedKernels&) = delete;
  CountedKernels& operator=(const CountedKernels&) = delete;

  /// From here on calls of this kernel count: count<&Kernels::add>().
  template <auto kKernel>
  void count() {
    count_calls<kKernel>(table_.*kKernel);
  }

  Ctx& ctx() { return ctx_; }
  static int64_t calls() { return calls_; }
  /// Of the first tensor of each call: what it writes.
  static int64_t elements() { return elements_; }

 private:
  template <auto kKernel, class... More>
  void count_calls(void (*kernel)(const Ctx&, Tensor, More...)) {
    static void (*real)(const Ctx&, Tensor, More...) = nullptr;
    real = kernel;
    table_.*kKernel = [](const Ctx& ctx, Tensor out, More... more) {
      ++calls_;
      elements_ += out.size();
      real(ctx, out, more...);
    };
  }

  // A kernel is a function without an object: what it counts stands here. A check runs one case at
  // a time.
  static inline int64_t calls_ = 0, elements_ = 0;
  Kernels table_;
  Arena arena_;
  Ctx ctx_;
};

}  // namespace ladder::lab
