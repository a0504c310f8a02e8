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

/// The position of padding, a token that no document has (DocumentBorders::position).
constexpr int32_t kPadding = -1;

/// Where documents lie in the B T tokens of one call (chapter 26; until then no call has any, and
/// `borders` is null). A row of T tokens holds several documents, or one and then padding.
/// Elsewhere these borders are called cu_seqlens.
///
/// To kernels, each document is a sequence of its own: its positions begin at 0, it attends only to
/// itself, has one loss, and is one leaf of every sum over sequences. Its place in these sums is
/// its turn. A turn may be empty, without a document: see kernels/documents.h.
///
/// Padding belongs to no document. Its token must be in the vocabulary, and its target be kIgnore,
/// so all gradients there are 0. `ref` and `cpu` leave padding out of every sum. CUDA's products
/// for weight gradients multiply it, too: kernels must write finite numbers there.
struct DocumentBorders {
  /// (D,2) I32: document d is rows [begin, end) of matrices of B T tokens. Documents
  /// ascend, and each lies in one row of T tokens. If begin = end, the turn is empty.
  Tensor borders;
  /// (B,T) I32: the place of each token in its document, from 0 on; kPadding for padding.
  /// fill_positions (kernels/documents.h) makes it from `borders`.
  Tensor position;
  int64_t longest = 0;  ///< tokens of the longest document; 0 if all turns are empty
  /// Powers of two: the turns of a bundle, and how many of them hold documents in this call. Those
  /// from `used` on are empty in every bundle. No sum looks at them; each has a loss of -0.
  int64_t turns = 1, used = 1;
  /// The length from which attention's chunks come: a document is the beginning of a sequence of so
  /// many tokens, and chunks that it does not reach are absent. 0: each document's own length.
  /// Attention on CUDA has no chunks, and no other sum reads this.
  int64_t chunk_length = 0;
};

/// One interval on the timeline of a rank, in nanoseconds of the steady clock.
struct Event {
  const char* name;  ///< a literal: it is not copied
  int64_t begin_ns;
  int64_t end_ns;
};

/// What every kernel and every part of the model gets. Each rank has its own.
struct Ctx {
  const Kernels* kernels = nullptr;  ///< the table of kernels
  Device* device = nullptr;          ///< where kernels run; null: on the host, at once
  int threads = 1;                   ///< of this rank on the host
  Tensor scratch;                    ///< U8, (threads, kernels->scratch_bytes); one row on a device
  int leaves = kLeaves;              ///< of a split sum, on this rank: kLeaves / tensor ranks
  /// Into how many chunks this call cuts the tokens of a sequence: kTokenChunks / context ranks.
  /// Unless it is 1, an early and a late chunk make one leaf together (folded: token_leaves.h).
  int token_chunks = kTokenChunks;
  /// Documents of the next calls. Kernels read both tensors where they compute: in memory of the
  /// host, of a device, or of both. The host changes them only after synchronize(). Null: each of
  /// the B rows is a sequence of T tokens. Otherwise cross_entropy and softmax_loss have D losses,
  /// one a turn, and token_chunks must be kTokenChunks.
  DocumentBorders documents;
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
