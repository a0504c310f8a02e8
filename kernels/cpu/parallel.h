// How the kernels of kernels/cpu share work between threads, and the scratch memory of threads.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>

#include <hwy/cache_control.h>

#include "kernels/check.h"
#include "kernels/context.h"
#include "kernels/cpu/team.h"
#include "kernels/tree.h"

namespace ladder {

/// Calls f(thread) on each of ctx.threads threads, and waits for all of them.
/// @throws what f throws; OutOfThreads if the threads cannot be started
template <class F>
void on_threads(const Ctx& ctx, F&& f) {
  auto part = [&f](int thread) {
    f(thread);
    hwy::FlushStream();  // makes stores past the caches visible to other threads
  };
  if (ctx.threads == 1) return part(0);
  Team::mine(ctx.threads).run(part);
}

/// Part `i` of `parts` of [0, n). Parts begin at multiples of `step`.
constexpr Range part_of(int64_t i, int64_t parts, int64_t n, int64_t step) {
  const Range steps = leaf(i, parts, ceil_div(n, step));
  return {std::min(n, steps.begin * step), std::min(n, steps.end * step)};
}

/// Calls f(range) on parts of [0, n), one part per thread. Parts begin at multiples of `step`.
/// `work` is about how many elements one index of [0, n) touches; if there is too little work, one
/// thread does it.
template <class F>
void parallel_for(const Ctx& ctx, int64_t n, int64_t step, int64_t work, F&& f) {
  constexpr int64_t kWorthAThread = 8192;
  if (n * work < 2 * kWorthAThread || ctx.threads == 1) {
    if (n > 0) f(Range{0, n});
    hwy::FlushStream();
    return;
  }
  on_threads(ctx, [&](int thread) {
    const Range part = part_of(thread, ctx.threads, n, step);
    if (part.size() > 0) f(part);
  });
}

/// The scratch memory of one thread.
inline std::span<std::byte> scratch_of(const Ctx& ctx, int thread) {
  const auto bytes = static_cast<size_t>(ctx.scratch.dim(1));
  return {static_cast<std::byte*>(ctx.scratch.ptr) + static_cast<size_t>(thread) * bytes, bytes};
}

/// The scratch memory of all threads as one array of `count` values.
/// @throws OutOfMemory if it is too small
template <class T>
std::span<T> shared_scratch(const Ctx& ctx, int64_t count) {
  const int64_t bytes = count * static_cast<int64_t>(sizeof(T));
  if (bytes > ctx.scratch.bytes())
    throw OutOfMemory(fmt::format("an operation takes {} bytes of scratch, and there are {}", bytes,
                                  ctx.scratch.bytes()));
  return {static_cast<T*>(ctx.scratch.ptr), static_cast<size_t>(count)};
}

}  // namespace ladder
