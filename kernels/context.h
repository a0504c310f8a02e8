// Ctx: what a kernel needs besides its tensors: a table, threads and scratch memory.
#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

#include "kernels/device.h"
#include "kernels/tensor.h"
#include "kernels/token_leaves.h"

namespace ladder {

struct Kernels;

/// The leaves into which a sum is cut, wherever tensor parallelism could split the sum.
constexpr int kLeaves = 8;

/// Documents that lie in rows of B T tokens, one behind the other: to attention each is a sequence
/// of its own.
struct PackedRows {
  /// (D+1) I32, where the kernels can read it: document d is rows [begin[d], begin[d+1]) of all B
  /// T. They fill all rows; padding is a document, too.
  Tensor begin;
  int64_t longest = 0;  ///< tokens
};

/// One interval on the timeline of a rank, in nanoseconds of the steady clock.
struct Event {
  const char* name;  ///< a literal: it is not copied
  int64_t begin_ns;
  int64_t end_ns;
};

/// Every kernel and every part of the model gets one. Each rank has one Ctx.
struct Ctx {
  const Kernels* kernels = nullptr;  ///< the table of kernels
  Device* device = nullptr;          ///< where kernels run; null: on the host, at once
  int threads = 1;                   ///< of this rank on the host
  Tensor scratch;                    ///< U8, (threads, kernels->scratch_bytes); one row on a device
  int leaves = kLeaves;              ///< leaves of a split sum that this rank has: kLeaves / tp
  /// How many chunks the tokens of a sequence are in this call. They are folded, unless it is 1.
  int token_chunks = kTokenChunks;
  PackedRows packed;                     ///< for attention; null: whole sequences
  std::vector<Event>* events = nullptr;  ///< where Span records; null: nowhere
  int64_t* flops = nullptr;              ///< where parts of the model count those of their products

  /// Waits for the kernels called so far. The host calls it before it reads what they write.
  void synchronize() const {
    if (device) device->synchronize();
  }
};

inline int64_t now_ns() {
  using namespace std::chrono;
  return duration_cast<nanoseconds>(steady_clock::now().time_since_epoch()).count();
}

/// Records one Event: the time from its construction to the end of its scope. Kernels of a device
/// run later than they are called. So a Span that records waits for earlier kernels when it is
/// made, and for its own when it ends.
class Span {
 public:
  Span(const Ctx& ctx, const char* name) : ctx_(&ctx), name_(name) {
    if (!ctx.events) return;
    ctx.synchronize();
    begin_ns_ = now_ns();
  }
  Span(const Span&) = delete;
  Span& operator=(const Span&) = delete;
  ~Span() {
    if (!ctx_->events) return;
    try {
      ctx_->synchronize();
      ctx_->events->push_back({name_, begin_ns_, now_ns()});
    } catch (...) {  // whoever waits next will see it; a span may be lost
    }
  }

 private:
  const Ctx* ctx_;
  const char* name_;
  int64_t begin_ns_ = 0;
};

}  // namespace ladder
