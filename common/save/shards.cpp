#include "common/save/shards.h"

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
class SectionPlaces {
 public:
  SectionPlaces(const ParamLayout& here, const ParamLayout& whole, int64_t each)
      : here_(here), whole_(whole), each_(each) {}

  /// Calls use(here, there, n) for runs of elements that are neighbors in both. `here` and `there`
  /// count from the beginning of the section.
  /// @param copies also those that other ranks count
  template <class Use>
  void for_runs(int64_t s, bool copies, Use&& use) const {
    for (const ParamSpec& spec : here_.specs(s)) {
      if (spec.is_copy && !copies) continue;
      const int64_t begin_here = spec.offset - here_.section(s).begin;
      const int64_t begin_there = whole_.spec(spec.name).offset - whole_.section(s).begin;
      spec.for_runs([&](int64_t here, int64_t there, int64_t n) {
        use(div_exact(begin_here + here, each_), div_exact(begin_there + there, each_),
            ceil_div(n, each_));
      });
    }
  }

  const ParamLayout& here() const { return here_; }

 private:
  ParamLayout here_;
  const ParamLayout& whole_;
  int64_t each_;
};

/// This rank's chunk of section s, in a flat buffer of either type: a whole one has it between
/// those of other ranks.
Tensor chunk_of(const ParamLayout& layout, const Flat& flat, int64_t s, int64_t each) {
  const Range own = layout.section(s);
  const int64_t in_whole = layout.whole_section(s).begin + layout.chunk(s) * own.size();
  return flat.tensor.slice((flat.is_shard ? own.begin : in_whole) / each,
                           div_exact(own.size(), each));
}

/// A tensor as bytes: no planted fault is meant for them (common/comm/faulty_comm.h).
Tensor as_bytes(Tensor tensor) {
  return {.ptr = tensor.ptr, .dtype = Dtype::U8, .shape = {tensor.bytes()}};
}

/// A tensor of n zeros in `bytes`.
Tensor zeros_in(std::vector<std::byte>& bytes, Dtype dtype, int64_t n) {
  bytes.assign(static_cast<size_t>(n * size_of(dtype)), std::byte{0});
  return {.ptr = bytes.data(), .dtype = dtype, .shape = {n}};
}

}  // namespace

int64_t whole_elements(const ParamLayout& layout, const Flat& flat) {
  return div_exact(layout.whole().size(), parameters_an_element(layout, flat));
}

int64_t ranks_of(const ParamLayout& layout) {
  return layout.tensor_rank().size * layout.shards() * layout.stage_rank().size;
}

void for_flat_runs(const ParamLayout& layout, const Flat& flat,
                   const std::function<void(int64_t begin, Tensor run)>& use) {
  CHECK(layout.shards() == 1 || layout.size() < layout.whole_size(), "no shard");
  const int64_t each = parameters_an_element(layout, flat);
  const ParamLayout whole = layout.whole();
  const SectionPlaces places(layout, whole, each);
  for (int64_t s = 0; s < whole.sections(); ++s) {
    if (layout.specs(s).empty()) continue;  // a section of another stage
    const Tensor section = chunk_of(layout, flat, s, each);
    places.for_runs(s, /*copies=*/false, [&](int64_t here, int64_t there, int64_t n) {
      use(whole.section(s).begin / each + there, section.slice(here, n));
    });
  }
}

void gather_sections(const Ctx& ctx, Comm* comm, const ParamLayout& layout, const Flat& flat,
                     const std::function<void(int64_t s, Tensor section)>& use) {
  const int64_t each = parameters_an_element(layout, flat), rank = comm ? comm->rank() : 0;
  if (rank >= ranks_of(layout)) return;
  const ParamLayout whole = layout.whole();
  std::vector<SectionPlaces> ranks;
  for (int64_t r = 0; rank == 0 && r < ranks_of(layout); ++r)
    ranks.emplace_back(layout.on_rank(r), whole, each);
  const HostCopy host = HostCopy::of(ctx, flat.tensor);
  std::vector<std::byte> memory, theirs;
  for (int64_t s = 0; s < whole.sections(); ++s) {
    const Tensor mine = chunk_of(layout, flat.copied_to(host.tensor()), s, each);
    if (rank > 0 && mine.size() > 0) comm->send(as_bytes(mine), 0);
    if (rank > 0 || whole.section(s).size() == 0) continue;
    const Tensor section =
        zeros_in(memory, flat.tensor.dtype, div_exact(whole.section(s).size(), each));
    for (size_t r = 0; r < ranks.size(); ++r) {
      const int64_t n = ranks[r].here().section(s).size() / each;
      const Tensor part = r == 0 ? mine : zeros_in(theirs, flat.tensor.dtype, n);
      if (r > 0 && n > 0) comm->recv(as_bytes(part), static_cast<int>(r));
      ranks[r].for_runs(s, /*copies=*/false, [&](int64_t from, int64_t to, int64_t count) {
        const Tensor run = part.slice(from, count);
        std::memcpy(section.slice(to, count).ptr, run.ptr, static_cast<size_t>(run.bytes()));
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
  const SectionPlaces places(flat.is_shard ? layout : layout.unsharded(), all, each);
  auto* out = static_cast<std::byte*>(host.tensor().ptr);
  std::vector<std::byte> section;
  for (int64_t s = 0; s < all.sections(); ++s) {
    if (places.here().specs(s).empty()) continue;  // a section of another stage
    section.resize(static_cast<size_t>(all.section(s).size() / each * size));
    whole(all.section(s).begin / each * size, section);
    places.for_runs(s, /*copies=*/true, [&](int64_t here, int64_t there, int64_t n) {
      std::memcpy(out + (places.here().section(s).begin / each + here) * size,
                  section.data() + there * size, static_cast<size_t>(n * size));
    });
  }
  host.send();
}

}  // namespace ladder
