// Dispatch: tokens go to the ranks that have their experts, and the outputs of experts come back.
// The origin of a token is the rank whose sequence the token is in. The owner of an expert is the
// rank that has it.
//
//   origin                                         owner
//     tokens (B,T,C)   ---- a row a token ---->      the same tokens, in (ep B,T,C)
//     add up owners    <--- a row a token -----      experts, added up in FP32
//
// A row is for a token and an owner, not for a token and an expert. If one rank has several experts
// of a token, the token goes there once, and one sum comes back. A row for each expert would be
// k n (ep - 1) / ep rows each way, for n tokens of a rank with k experts each, chosen evenly. A row
// for each owner is never more.
//
// Owners are to an origin what experts are in chapter 21: the rows of its tokens are sorted by
// owner, then by token, and the rows of a token are added in the order of owners. So the kernels of
// chapter 21 pack and add these rows, too. An owner sorts its rows by the rank that they come from.
//
// How many rows travel is known only once tokens have chosen. So the numbers of rows go first, in
// an all-to-all of equal parts.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <numeric>
#include <span>
#include <vector>

#include "chapters/22_expert_parallel/all_to_all.h"
#include "chapters/22_expert_parallel/owned_experts.h"
#include "common/comm/comm.h"
#include "common/run/log.h"
#include "kernels/context.h"
#include "kernels/kernels.h"
#include "kernels/narrow.h"

namespace ladder {

class Dispatch {
 public:
  Dispatch(Arena& arena, Comm& world, const OwnedShape& shape)
      : s(shape), group_(world.split(world.rank() / static_cast<int>(s.ep), world.rank())) {
    if (s.E == 0) return;
    const int64_t columns = s.columns();
    origin_rows_ = arena.alloc(Mem::Comm, "origin_rows", Dtype::F32, {s.sent_rows() * columns});
    owner_rows_ = arena.alloc(Mem::Comm, "owner_rows", Dtype::F32, {s.arrived_tokens() * columns});
    choices_out_ = arena.shared(Mem::Comm, "choices.leaving", Dtype::I32, {s.sent_rows(), 1 + s.k});
    choices_in_ =
        arena.shared(Mem::Comm, "choices.arriving", Dtype::I32, {s.arrived_tokens(), 1 + s.k});
    taken_ = arena.shared(Mem::Workspace, "taken", Dtype::I32, {s.B, s.T, s.k});
    if (s.narrow()) joined_ = arena.alloc(Mem::Workspace, "joined", Dtype::F32, {s.B, s.T, s.C});
  }
  static void add_bytes(MemoryBytes& bytes, const OwnedShape& s) {
    if (s.E == 0) return;
    bytes[Mem::Comm] += 4 * (s.sent_rows() + s.arrived_tokens()) * (s.columns() + 1 + s.k);
    bytes[Mem::Workspace] += 4 * s.B * s.T * (s.k + (s.narrow() ? s.C : 0));
  }

  /// From the choices of own tokens: which rows travel, and which of this rank's experts each token
  /// that arrives takes, with which weights w_e. A full expert drops tokens here, sequence by
  /// sequence, so they do not travel.
  /// @param capacity tokens of a sequence that an expert takes; 0: all
  void choose(const Ctx& ctx, const OwnedActs& a, int64_t capacity) {
    const Span span(ctx, "dispatch_choose");
    ctx.synchronize();  // the host reads what the router has chosen
    take(a.tokens.expert, capacity);
    find_owners(a.sent.peer);
    ctx.kernels->expert_rows(ctx, a.sent.rows, a.sent.peer, 0);
    ctx.synchronize();
    write_choices(a.sent);
    const std::vector<int32_t> arriving = exchange_counts(*group_, counts(a.sent));
    all_to_all_rows(*group_, choices_in_, arriving, choices_out_, begins(a.sent));
    read_choices(a, arriving);
    ctx.kernels->expert_rows(ctx, a.arrived.rows, a.arrived.peer, 0);
    to_owners(ctx, a, a.experts.weight, a.tokens.weight);
    count(forward_, a);
  }

  /// to (ep B,T,N): the tokens of `from` (B,T,N) that arrive, of all origins. A token that does not
  /// come is -0, as an empty sum is.
  void to_owners(const Ctx& ctx, const OwnedActs& a, Tensor to, Tensor from) {
    const Span span(ctx, "to_owners");
    travel(ctx, to, a.arrived, owner_rows_, from, a.sent, origin_rows_);
  }
  /// to (B,T,N): the sum over a token's owners of what they have for it in `from` (ep B,T,N), F32.
  /// It is rounded once, to the dtype of `to`.
  void to_origins(const Ctx& ctx, const OwnedActs& a, Tensor to, Tensor from) {
    const Span span(ctx, "to_origins");
    const bool wide = to.dtype == from.dtype;
    const Tensor sum = wide ? to : flat(joined_).first(to.size()).view(to.shape);
    travel(ctx, sum, a.sent, origin_rows_, from, a.arrived, owner_rows_);
    if (!wide) ctx.kernels->cast(ctx, to, sum);
  }
  /// The same for the gradients of a token's k weights, once for each backward of a block. An owner
  /// returns those of its experts, and 0 for the others. To add 0 changes no bit of a number but
  /// -0, and these are never -0: each is a sum that began with +0.
  void weights_to_origins(const Ctx& ctx, const OwnedActs& a, Tensor to, Tensor from) {
    to_origins(ctx, a, to, from);
    count(backward_, a);
  }

  void begin_step() { forward_ = backward_ = {}; }
  void show(RunLog& log) const { log.count(*group_); }
  /// Of the last step: bytes that this rank has sent to the others of its group, and rows, for each
  /// rank. The predicted bytes are those of the rows that were counted: before tokens have chosen
  /// nobody knows how many there will be.
  void report(RunLog& log, Comm& world) const {
    if (s.E == 0) return;
    if (log.steps() == 0) return;
    const int64_t ids = 4 * (1 + s.k), weights = 4 * s.k, row = size_of(s.dtype) * s.C;
    const int64_t predicted = 4 * (s.ep - 1) * forward_.times +
                              forward_.out * (ids + weights + row) + forward_.in * 4 * s.C +
                              backward_.out * row + backward_.in * (4 * s.C + weights);
    const auto gathered = [&](int64_t own) {
      std::vector<int64_t> all(static_cast<size_t>(world.size()));
      world.all_gather({.ptr = all.data(), .dtype = Dtype::I64, .shape = {world.size()}},
                       {.ptr = &own, .dtype = Dtype::I64, .shape = {1}});
      return all;
    };
    log.extra()["expert_parallel"] = {
        {"ep", s.ep},
        {"sent", {{"predicted", predicted}, {"measured", log.sent_in_step(*group_)}}},
        {"rows", {{"of_owners", gathered(forward_.out)}, {"of_experts", gathered(forward_.each)}}},
        {"arrived", gathered(forward_.in)},
        {"computed", gathered(forward_.computed)}};
  }

 private:
  /// Rows of the passes of a step through all blocks, without those that stay on this rank.
  struct Count {
    int64_t times = 0;     ///< passes of one block each
    int64_t out = 0;       ///< rows that leave for owners: one for a token and an owner
    int64_t each = 0;      ///< rows that would leave with one for a token and an expert
    int64_t in = 0;        ///< rows that arrive from origins
    int64_t computed = 0;  ///< rows of own experts; here rows of own tokens count, too
  };

  void count(Count& of, const OwnedActs& a) const {
    const auto others = [&](const Travellers& all) {
      const std::span<const int32_t> begin = begins(all);
      const auto me = static_cast<size_t>(group_->rank());
      return begin.back() - (begin[me + 1] - begin[me]);
    };
    ++of.times;
    of.out += others(a.sent);
    of.in += others(a.arrived);
    for (int64_t i = 0; i < taken_.size(); ++i) {
      const int32_t e = taken_.data<int32_t>()[i];
      of.each += e != kElsewhere && owner_of(e) != group_->rank() ? 1 : 0;
    }
    const int32_t* here = a.experts.expert.data<int32_t>();
    of.computed +=
        a.experts.expert.size() - std::count(here, here + a.experts.expert.size(), kElsewhere);
  }

  static std::span<const int32_t> begins(const Travellers& all) {
    return {all.rows.offsets.data<int32_t>(), static_cast<size_t>(all.rows.offsets.size())};
  }
  /// How many rows each rank at the other end has.
  static std::vector<int32_t> counts(const Travellers& all) {
    std::vector<int32_t> rows(begins(all).size());
    std::adjacent_difference(begins(all).begin(), begins(all).end(), rows.begin());
    return {rows.begin() + 1, rows.end()};
  }
  int64_t owner_of(int32_t expert) const { return expert / s.own_experts(); }

  /// taken_ = the choices of tokens, without those that a full expert drops.
  void take(Tensor expert, int64_t capacity) {
    std::fill_n(taken_.data<int32_t>(), taken_.size(), kElsewhere);
    std::vector<int64_t> met(static_cast<size_t>(s.E));
    const int32_t* chosen = expert.data<int32_t>();
    for (int64_t pair = 0; pair < expert.size(); ++pair) {
      if (pair % (s.T * s.k) == 0) std::fill(met.begin(), met.end(), 0);  // the next sequence
      int64_t& so_far = met[static_cast<size_t>(chosen[pair])];
      if (capacity == 0 || so_far++ < capacity) taken_.data<int32_t>()[pair] = chosen[pair];
    }
  }
  /// peer (n,T,w) = the owners of each token, each once. They ascend, since a token's experts do.
  void find_owners(Tensor peer) const {
    const int32_t* taken = taken_.data<int32_t>();
    std::fill_n(peer.data<int32_t>(), peer.size(), kElsewhere);
    for (int64_t token = 0; token < peer.dim(0) * s.T; ++token) {
      int32_t* next = peer.data<int32_t>() + token * s.w();
      int64_t last = kElsewhere;
      for (int64_t j = 0; j < s.k; ++j) {
        const int32_t e = taken[token * s.k + j];
        if (e == kElsewhere || owner_of(e) == last) continue;
        last = owner_of(e);
        *next++ = static_cast<int32_t>(last);
      }
    }
  }
  /// For each row that leaves: its token, and which experts of its owner the token takes, numbered
  /// from the owner's first.
  void write_choices(const Travellers& sent) const {
    for (int64_t owner = 0; owner < s.ep; ++owner)
      for (int64_t row = begins(sent)[static_cast<size_t>(owner)];
           row < begins(sent)[static_cast<size_t>(owner) + 1]; ++row) {
        const int64_t token = sent.rows.from.data<int32_t>()[row] / s.w();
        const int32_t* taken = taken_.data<int32_t>() + token * s.k;
        int32_t* out = choices_out_.data<int32_t>() + row * (1 + s.k);
        *out++ = static_cast<int32_t>(token);
        for (int64_t j = 0; j < s.k; ++j) {
          const bool here = taken[j] != kElsewhere && owner_of(taken[j]) == owner;
          *out++ = here ? static_cast<int32_t>(taken[j] % s.own_experts()) : kElsewhere;
        }
      }
  }
  /// The same on the other side, where sequences of all origins stand one behind the other: those
  /// of rank q of the group are q B to (q + 1) B - 1.
  void read_choices(const OwnedActs& a, std::span<const int32_t> arriving) const {
    int32_t *peer = a.arrived.peer.data<int32_t>(), *expert = a.experts.expert.data<int32_t>();
    std::fill_n(peer, a.arrived.peer.size(), kElsewhere);
    std::fill_n(expert, a.experts.expert.size(), kElsewhere);
    for (int64_t origin = 0; origin < s.ep; ++origin)
      for (int64_t row = arriving[static_cast<size_t>(origin)];
           row < arriving[static_cast<size_t>(origin) + 1]; ++row) {
        const int32_t* inp = choices_in_.data<int32_t>() + row * (1 + s.k);
        CHECK(*inp >= 0 && *inp < s.B * s.T, "token {} of {}", *inp, s.B * s.T);
        const int64_t token = origin * s.B * s.T + *inp;
        peer[token] = static_cast<int32_t>(origin);
        std::copy_n(inp + 1, s.k, expert + token * s.k);
      }
  }
  /// Packs rows of `from` into `leaving`, exchanges them, and adds up in `to` what is `arriving`.
  void travel(const Ctx& ctx, Tensor to, const Travellers& to_rows, Tensor arriving, Tensor from,
              const Travellers& from_rows, Tensor leaving) {
    // The memory is F32 and has columns for the widest rows. These rows may be narrower.
    const auto room = [&](Tensor memory, const Travellers& all) {
      memory.dtype = from.dtype;
      memory.shape = {all.rows.from.size(), from.dim(2)};
      return memory;
    };
    const Tensor in = room(arriving, to_rows), out = room(leaving, from_rows);
    ctx.kernels->gather_rows(ctx, out, from, from_rows.rows);
    ctx.synchronize();  // the host reads begins
    all_to_all_rows(*group_, in, begins(to_rows), out, begins(from_rows));
    ctx.kernels->combine_forward(ctx, to, in, to_rows.rows, to_rows.peer, {});
  }

  const OwnedShape s;
  std::unique_ptr<Comm> group_;      ///< ep neighbors, which together have all experts
  Tensor origin_rows_, owner_rows_;  ///< packed rows: of this rank as an origin, and as an owner
  Tensor choices_out_, choices_in_;  ///< (rows,1+k) I32
  Tensor taken_;                     ///< (B,T,k) I32, the choices that no full expert has dropped
  Tensor joined_;                    ///< F32 (B,T,C), sums to be rounded, if activations are narrow
  Count forward_, backward_;         ///< of this step
};

}  // namespace ladder
