#include "common/save/file_order.h"

#include <algorithm>
#include <utility>

#include "common/hf/layout.h"
#include "common/model/shards.h"
#include "kernels/check.h"
#include "kernels/transfer.h"

namespace ladder {

FileOrder::FileOrder(const TrainingState& state)
    : state_(state),
      whole_(state.layout.whole()),
      rank_(state.comm ? state.comm->rank() : 0),
      each_(ranks_of(state.layout)) {
  const int64_t ranks = state.comm ? state.comm->size() : 1;
  CHECK(ranks >= each_, "{} ranks write what {} have", ranks, each_);
  R_ = ranks / each_;
  replica_ = rank_ / each_;
  for (int64_t rank = 0; rank < each_; ++rank)
    for (const ParamLayout there = state.layout.on_rank(rank);
         const ParamSpec& spec : there.specs()) {
      if (!is_transposed(spec, state.gpt)) continue;
      std::vector<Owner>& owners = owners_[spec.name];
      const int64_t begin = owners.empty() ? 0 : owners.back().range.end;
      owners.push_back({replica_ * each_ + rank, spec, {begin, begin + spec.live()}});
    }
}

Range FileOrder::part(int64_t n) const {
  if (each_ > 1) return {0, rank_ == 0 ? n : 0};  // other ranks may have other elements
  if (replica_ >= R_) return {0, 0};
  return {replica_ * n / R_, (replica_ + 1) * n / R_};
}

Range FileOrder::range(const ParamSpec& spec) const {
  for (const Owner& owner : owners_.at(spec.name))
    if (owner.rank == rank_) return owner.range;
  return {};
}

void FileOrder::exchange(const ParamSpec& spec, const float* part, float* out) const {
  const std::vector<Owner>& owners = owners_.at(spec.name);
  const int64_t n = std::ssize(owners);
  const int64_t rows = whole_.spec(spec.name).rows;
  const auto own = std::ranges::find(owners, rank_, &Owner::rank) - owners.begin();
  const auto bytes = [](std::vector<float>& of) {  // no planted fault is meant for bytes
    return Tensor{.ptr = of.data(), .dtype = Dtype::U8, .shape = {std::ssize(of) * 4}};
  };
  std::vector<float> sent, received;
  for (int64_t distance = 0; distance < n; ++distance) {
    const Owner& to = owners[static_cast<size_t>((own + distance) % n)];
    const Owner& from = owners[static_cast<size_t>((own + n - distance) % n)];
    std::vector<Strip> strips =
        strips_of(from.spec, state_.gpt, rows, owners[static_cast<size_t>(own)].range);
    const float* at = part;
    if (distance > 0) {
      sent.clear();
      for (const Strip& strip : strips_of(spec, state_.gpt, rows, to.range))
        sent.insert(sent.end(), part + strip.here, part + strip.here + strip.n);
      int64_t size = 0;
      for (Strip& strip : strips) strip.here = std::exchange(size, size + strip.n);
      received.resize(static_cast<size_t>(size));
      state_.comm->exchange(bytes(sent), static_cast<int>(to.rank), bytes(received),
                            static_cast<int>(from.rank));
      at = received.data();
    }
    turn(strips, at, rows, out);
  }
}

void FileOrder::stage(const Ctx& ctx, Tensor weights) const {
  const ParamLayout& layout = state_.layout;
  const HostCopy host = HostCopy::of(ctx, state_.params.tensor);
  const auto at = [&](Tensor flat, const ParamSpec& spec) {
    return layout.tensor(state_.params.copied_to(flat), spec).data<float>();
  };
  for (const ParamSpec& spec : layout.specs()) {
    if (!writes(spec)) continue;
    const float* from = at(host.tensor(), spec);
    if (is_transposed(spec, state_.gpt))
      exchange(spec, from, at(weights, spec));
    else
      std::copy_n(from, spec.live(), at(weights, spec));
  }
}

}  // namespace ladder
