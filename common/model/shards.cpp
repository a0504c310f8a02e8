#include "common/model/shards.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "kernels/check.h"
#include "kernels/transfer.h"

namespace ladder {
namespace {

/// How many parameters one element of a flat tensor stands for.
int64_t parameters_an_element(const ParamLayout& layout, const Flat& flat) {
  return div_exact(flat.is_shard ? layout.size() : layout.whole_size(), flat.tensor.size());
}

/// A layout and that of the whole model: where elements of section s lie in either.
class Places {
 public:
  Places(const ParamLayout& here, const ParamLayout& whole, int64_t each)
      : here_(here), whole_(whole), each_(each) {}

  /// Calls use(here, there, n) for runs of elements that are neighbors in both. `here` and `there`
  /// count from the beginning of the section.
  template <class Use>
  void for_runs(int64_t s, Use&& use) const {
    for (const ParamSpec& spec : here_.specs(s)) {
      if (spec.is_copy) continue;
      for_runs_of(spec, s, use);
    }
  }
  /// The same, and also for copies of what other ranks count.
  template <class Use>
  void for_all_runs(int64_t s, Use&& use) const {
    for (const ParamSpec& spec : here_.specs(s)) for_runs_of(spec, s, use);
  }

  const ParamLayout& here() const { return here_; }

 private:
  template <class Use>
  void for_runs_of(const ParamSpec& spec, int64_t s, Use&& use) const {
    const int64_t begin_here = spec.offset - here_.section(s).begin;
    const int64_t begin_there = whole_.spec(spec.name).offset - whole_.section(s).begin;
    spec.for_runs([&](int64_t here, int64_t there, int64_t n) {
      use(div_exact(begin_here + here, each_), div_exact(begin_there + there, each_),
          ceil_div(n, each_));
    });
  }

  ParamLayout here_;
  const ParamLayout& whole_;
  int64_t each_;
};

void copy(const Tensor& to, int64_t at, const Tensor& from, int64_t begin, int64_t n) {
  const Tensor out = to.slice(at, n), inp = from.slice(begin, n);
  std::memcpy(out.ptr, inp.ptr, static_cast<size_t>(inp.bytes()));
}

/// Which rank sends what. Ranks hold whole sections, or chunks of them.
class Senders {
 public:
  Senders(const ParamLayout& layout, bool cut) : cut_(cut) {
    const ParamLayout shard = layout.unsharded().shard(0);
    const int64_t all = layout.tensor_rank().size * layout.shards() * layout.stage_rank().size;
    for (int64_t r = 0; r < all; ++r) shards_.push_back(shard.on_rank(r));
  }
  int size() const { return static_cast<int>(shards_.size()); }
  /// Whether rank r sends its part of section s. If sections are not cut, only the first of the
  /// ranks that have the same part sends it.
  bool send(int r, int64_t s) const { return cut_ || of(r).chunk(s) == 0; }
  /// Whether rank r sends anything. A rank that the layout does not know holds what another rank
  /// holds.
  bool send(int r) const {
    for (int64_t s = 0; r < size() && s < of(r).sections(); ++s)
      if (send(r, s)) return true;
    return false;
  }

 private:
  const ParamLayout& of(int r) const { return shards_.at(static_cast<size_t>(r)); }

  std::vector<ParamLayout> shards_;
  bool cut_;
};

/// A tensor of n zeros in `bytes`.
Tensor room(std::vector<std::byte>& bytes, Dtype dtype, int64_t n) {
  bytes.assign(static_cast<size_t>(n * size_of(dtype)), std::byte{0});
  return {.ptr = bytes.data(), .dtype = dtype, .shape = {n}};
}

}  // namespace

int64_t whole_elements(const ParamLayout& layout, const Flat& flat) {
  return div_exact(layout.whole().size(), parameters_an_element(layout, flat));
}

void gather_sections(const Ctx& ctx, Comm* comm, const ParamLayout& layout, const Flat& flat,
                     const std::function<void(int64_t s, Tensor section)>& use) {
  const int64_t each = parameters_an_element(layout, flat);
  const ParamLayout whole = layout.whole();
  const ParamLayout own = flat.is_shard ? layout : layout.unsharded();
  const int rank = comm ? comm->rank() : 0;
  const Senders senders(layout, flat.is_shard);
  if (!senders.send(rank)) return;

  std::vector<Places> places;
  for (int r = 0; rank == 0 && r < senders.size(); ++r)
    places.emplace_back(own.on_rank(r), whole, each);
  const HostCopy host = HostCopy::of(ctx, flat.tensor);
  std::vector<std::byte> bytes, theirs;
  for (int64_t s = 0; s < whole.sections(); ++s) {
    if (whole.section(s).size() == 0) continue;  // the section of a tied head
    const Range here = own.section(s);
    const Tensor mine = host.tensor().slice(here.begin / each, div_exact(here.size(), each));
    if (rank > 0) {
      if (mine.size() > 0 && senders.send(rank, s)) comm->send(mine, 0);
      continue;
    }
    const Tensor section = room(bytes, flat.tensor.dtype, div_exact(whole.section(s).size(), each));
    for (int r = 0; r < senders.size(); ++r) {
      const Places& at = places[static_cast<size_t>(r)];
      const int64_t n = div_exact(at.here().section(s).size(), each);
      if (n == 0 || !senders.send(r, s)) continue;
      const Tensor part = r == 0 ? mine : room(theirs, flat.tensor.dtype, n);
      if (r > 0) comm->recv(part, r);
      at.for_runs(s, [&](int64_t from, int64_t to, int64_t count) {
        copy(section, to, part, from, count);
      });
    }
    use(s, section);
  }
}

void take_shard(const Ctx& ctx, const ParamLayout& layout, const Flat& flat,
                const ReadBytes& whole) {
  const HostCopy host = HostCopy::to_write(ctx, flat.tensor);
  std::memset(host.tensor().ptr, 0, static_cast<size_t>(flat.tensor.bytes()));
  const int64_t each = parameters_an_element(layout, flat), size = size_of(flat.tensor.dtype);
  const ParamLayout all = layout.whole();
  const Places places(flat.is_shard ? layout : layout.unsharded(), all, each);
  auto* out = static_cast<std::byte*>(host.tensor().ptr);
  std::vector<std::byte> section;
  for (int64_t s = 0; s < all.sections(); ++s) {
    if (places.here().specs(s).empty()) continue;  // a section of another stage
    section.resize(static_cast<size_t>(all.section(s).size() / each * size));
    whole(all.section(s).begin / each * size, section);
    places.for_all_runs(s, [&](int64_t here, int64_t there, int64_t n) {
      std::memcpy(out + (places.here().section(s).begin / each + here) * size,
                  section.data() + there * size, static_cast<size_t>(n * size));
    });
  }
  host.send();
}

}  // namespace ladder
