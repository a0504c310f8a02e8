// ZeRO stage 3, also known as fully sharded data parallelism: every rank has the weights of its
// chunks, and no others (arXiv 1910.02054; Zhao et al., "PyTorch FSDP", arXiv 2304.11277).
//
// Forward and backward of a section need the whole section. So its chunks are gathered into a
// buffer before, and a later section uses the same buffer again. With a second buffer, the next
// section is on its way while this one computes:
//
//   forward    gathers    embed | block 0 | block 1 | block 2 | ...
//              computes           embed   | block 0 | block 1 | ...
//   backward   gathers    block L-2 | block L-3 | ...
//              computes   block L-1 | block L-2 | ...
//
// A section takes the buffer that was used longest ago (LRU). So block L - 1 is still there when
// backward begins with it, and block L - 2 is gathered meanwhile.
//
// A micro-step gathers about 2 P and reduces P. GA micro-steps send 3 GA P, where stage 1 sends 2 P
// and stage 2 sends (GA + 1) P. With --reshard-after-forward 0 every section has a buffer of its
// own, and is gathered once per step. Traffic and memory are then those of stage 2, except that a
// rank has its own chunks twice. (FSDP's switch of that name keeps weights only from forward to
// backward, and gathers once per micro-step.)
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "chapters/06_checkpointing/recompute.h"
#include "chapters/08_zero1/zero1.h"
#include "common/model/layout.h"
#include "common/run/comm_stream.h"
#include "common/run/command_line.h"
#include "common/run/options.h"
#include "kernels/arena.h"
#include "kernels/kernels.h"

namespace ladder {

struct Zero3Options {
  int prefetch = 1;
  int reshard = 1;

  void add_to(CommandLine& line) {
    line.group("10_zero3");
    line.add("--prefetch", prefetch, "1: the next section is gathered while this one computes",
             {.legal = {"0", "1"}});
    line.add("--reshard-after-forward", reshard, "0: sections stay gathered until the step ends",
             {.legal = {"0", "1"}});
  }

  /// How many sections can be gathered at the same time.
  int64_t buffers(const ParamLayout& layout) const {
    return reshard == 1 ? 1 + prefetch : layout.sections();
  }
  /// How many elements all buffers have together.
  int64_t buffer_elements(const ParamLayout& layout) const {
    return reshard == 1 ? buffers(layout) * layout.largest_section() : layout.size();
  }
};

/// Which section each buffer holds.
class SectionCache {
 public:
  explicit SectionCache(int64_t count) : held_(static_cast<size_t>(count)) {}

  void clear() { held_.assign(held_.size(), {}); }

  struct Found {
    size_t buffer;
    bool there;  ///< false: another section is in this buffer, or none, and must go
  };
  /// The buffer of section s. From now on it is the buffer that was used last.
  Found find_or_evict(int64_t s) {
    const Found found = find(s);
    held_[found.buffer] = {s, ++clock_};
    return found;
  }

 private:
  struct Held {
    int64_t section = -1;
    int64_t used = 0;
  };
  Found find(int64_t s) const {
    size_t oldest = 0;
    for (size_t i = 0; i < held_.size(); ++i) {
      if (held_[i].section == s) return {i, true};
      if (held_[i].used < held_[oldest].used) oldest = i;
    }
    return {oldest, false};
  }

  std::vector<Held> held_;
  int64_t clock_ = 0;
};

/// Weights (chapter 05) of a shard. `master` and `compute` are the buffers of `flat` as Shards, so
/// that no function takes a shard for a whole buffer.
struct WeightShard {
  Weights flat;
  Shard master{flat.master}, compute{flat.compute};

  void refresh(const Ctx& ctx) const { flat.refresh(ctx); }
};

/// The weights as a model. Only a few sections are gathered at a time. view() is good for the
/// section of the last unshard(): an older one may point into a buffer that another section has by
/// now.
class GatheredParams {
 public:
  /// @param own this rank's weights, in the dtype that forward reads
  GatheredParams(Arena& arena, CommStream& comm_stream, const ParamLayout& layout,
                 const ParamLayout& shard, const Shard& own, const Zero3Options& options)
      : comm_stream_(comm_stream),
        layout_(&layout),
        shard_(&shard),
        own_(own),
        prefetch_(options.prefetch == 1 && comm_stream.has_thread()),
        cache_(options.buffers(layout)),
        buffers_(static_cast<size_t>(options.buffers(layout))) {
    for (size_t i = 0; i < buffers_.size(); ++i) {
      // Empty buffers are taken in order (of equally old ones find() takes the first), and forward
      // uses sections in order: section i gets buffer i.
      const int64_t n = options.reshard == 1 ? layout.largest_section()
                                             : layout.section(static_cast<int64_t>(i)).size();
      buffers_[i].buffer = arena.zeros(Mem::Workspace, "gathered", own.tensor.dtype, {n});
    }
    view_.blocks.resize(static_cast<size_t>(layout.sections()) - 2);
  }

  /// Makes section s whole in view(), and begins to gather section `next`. next 0: gathers nothing.
  /// (Section 0, the embedding, is never `next`, because only a new micro-step begins with it.)
  void unshard(const Ctx& ctx, int64_t s, int64_t next = 0) {
    s = layout_->home_of(s);
    const size_t buffer = gather(s);
    if (SectionBuffer& state = buffers_[buffer]; !state.in_view) {
      {
        const Span span(ctx, "wait_for_params");
        state.gathered.wait();
      }
      state.in_view = true;
      layout_->put(view_, s, section(buffer, s));
    }
    if (prefetch_ && next > 0) gather(layout_->home_of(next));
  }
  const GptTensors& view() const { return view_; }

  /// The weights are new, so what was gathered is not used again.
  void reshard() {
    for (SectionBuffer& state : buffers_) state.gathered.wait();
    cache_.clear();
  }

 private:
  struct SectionBuffer {
    Tensor buffer = {};
    Pending gathered = {};
    bool in_view = false;
  };

  Tensor section(size_t buffer, int64_t s) const {
    return buffers_[buffer].buffer.first(layout_->section(s).size());
  }

  /// The buffer where section s is, or will be once it is gathered.
  size_t gather(int64_t s) {
    const auto [buffer, there] = cache_.find_or_evict(s);
    if (there) return buffer;
    SectionBuffer& state = buffers_[buffer];
    state.gathered.wait();  // done already, unless a section was gathered ahead and not used
    state.in_view = false;
    const Tensor whole = section(buffer, s), own = shard_->section_of(own_, s);
    state.gathered = comm_stream_.run([whole, own](const Ctx& ctx, Collectives& collectives) {
      const Span span(ctx, "all_gather");
      const Chunks chunks = chunks_of(whole, collectives);
      ctx.kernels->cast(ctx, chunks.of(whole, collectives.comm().rank()), own);  // a copy
      collectives.all_gather(whole, chunks);
    });
    return buffer;
  }

  CommStream& comm_stream_;
  const ParamLayout *layout_, *shard_;
  Shard own_;
  bool prefetch_;
  SectionCache cache_;
  std::vector<SectionBuffer> buffers_;
  GptTensors view_;
};

/// The section that backward uses first after block l; 0: none.
inline int64_t section_after(const Recompute& recompute, int64_t l) {
  if (l == 0) return 0;
  const Range segment = recompute.segment_before(l - 1);
  return segment.size() > 0 ? segment.begin + 1 : l;  // block b is section b + 1
}

/// The sections that a micro-step uses, in order: in forward, then in recomputation and backward.
inline std::vector<int64_t> sections_used(int64_t layers, const Recompute& recompute) {
  std::vector<int64_t> all;
  for (int64_t s = 0; s <= layers + 1; ++s) all.push_back(s);
  for (int64_t l = layers; l-- > 0;) {
    for (int64_t b = recompute.segment_before(l).begin; b < recompute.segment_before(l).end; ++b)
      all.push_back(b + 1);
    all.push_back(l + 1);
  }
  return all;
}

/// Bytes that one rank sends in a step of GA micro-steps. Each micro-step has a reduce-scatter of
/// F32 gradients, and an all-gather of every section that is used while it is in no buffer. The
/// formula holds for reductions in which all ranks send equally many bytes.
inline std::optional<int64_t> zero3_traffic(const ParamLayout& layout, const DdpOptions& ddp,
                                            const PrecisionOptions& precision,
                                            const Recompute& recompute, const Zero3Options& options,
                                            int64_t GA) {
  if (!ddp.sends_equally()) return std::nullopt;
  SectionCache cache(options.buffers(layout));
  int64_t gathered = 0;
  for (int64_t k = 0; k < GA; ++k)
    for (const int64_t s : sections_used(layout.sections() - 2, recompute))
      if (!cache.find_or_evict(layout.home_of(s)).there)
        gathered += layout.section(layout.home_of(s)).size();
  const int64_t bytes = 4 * GA * layout.grads().size() + size_of(precision.dtype()) * gathered;
  return bytes / layout.shards() * (layout.shards() - 1);
}

}  // namespace ladder
