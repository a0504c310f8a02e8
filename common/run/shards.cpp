#include "common/run/shards.h"

#include <cstring>
#include <vector>

#include "kernels/transfer.h"

namespace ladder {
namespace {

/// Whether a flat tensor holds this shard alone.
bool is_cut(const ParamLayout& layout, const Tensor& flat) {
  return layout.shards() > 1 && layout.whole_size() % flat.size() == 0 &&
         flat.size() <= layout.size();
}

/// Parameters for one element of a flat tensor.
int64_t parameters_an_element(const ParamLayout& layout, const Tensor& flat) {
  return div_exact(is_cut(layout, flat) ? layout.size() : layout.whole_size(), flat.size());
}

/// Copies the chunks of all ranks behind each other into `section`, on rank 0.
void gather_chunks(Comm& comm, Tensor section, Tensor own) {
  if (comm.rank() != 0) return comm.send(own, 0);
  std::memcpy(section.ptr, own.ptr, static_cast<size_t>(own.bytes()));
  for (int rank = 1; rank < comm.size(); ++rank)
    comm.recv(section.slice(rank * own.size(), own.size()), rank);
}

}  // namespace

int64_t whole_elements(const ParamLayout& layout, const Tensor& flat) {
  int64_t sum = 0;
  for (int64_t s = 0; s < layout.sections(); ++s) sum += layout.unpadded(s);
  return div_exact(sum, parameters_an_element(layout, flat));
}

void gather_sections(const Ctx& ctx, Comm* comm, const ParamLayout& layout, Tensor flat,
                     const std::function<void(int64_t s, Tensor section)>& use) {
  const bool cut = is_cut(layout, flat), first = !comm || comm->rank() == 0;
  if (!cut && !first) return;
  const HostCopy host = HostCopy::of(ctx, flat);
  const int64_t each = parameters_an_element(layout, flat);
  std::vector<std::byte> bytes;
  for (int64_t s = 0; s < layout.sections(); ++s) {
    const Range own = cut ? layout.section(s) : layout.whole_section(s);
    Tensor section = host.tensor().slice(own.begin / each, div_exact(own.size(), each));
    if (cut) {
      const Tensor chunk = section;
      bytes.resize(first ? static_cast<size_t>(layout.shards() * chunk.bytes()) : 0);
      section = {
          .ptr = bytes.data(), .dtype = flat.dtype, .shape = {layout.shards() * chunk.size()}};
      gather_chunks(*comm, section, chunk);
    }
    if (first) use(s, section.first(div_exact(layout.unpadded(s), each)));
  }
}

void take_shard(const Ctx& ctx, const ParamLayout& layout, Tensor flat,
                std::span<const std::byte> whole) {
  const HostCopy host = HostCopy::to_write(ctx, flat);
  std::memset(host.tensor().ptr, 0, static_cast<size_t>(flat.bytes()));
  const int64_t each = parameters_an_element(layout, flat), size = size_of(flat.dtype);
  auto* out = static_cast<std::byte*>(host.tensor().ptr);
  int64_t section_begin = 0;
  for (int64_t s = 0; s < layout.sections(); ++s) {
    const int64_t n = layout.section(s).size(), all = layout.unpadded(s);
    const int64_t begin = std::min(all, layout.rank() * n);
    const int64_t count = std::min(all, begin + n) - begin;
    std::memcpy(out + layout.section(s).begin / each * size,
                whole.data() + (section_begin + begin) / each * size,
                static_cast<size_t>(count / each * size));
    section_begin += all;
  }
  host.send();
}

}  // namespace ladder
