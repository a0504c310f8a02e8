// The exchange: tokens go to the ranks that have their experts, and the outputs of experts come
// back. Dispatch and combine, as in chapter 21, are what an owner does with the tokens that have
// come: it sorts them by expert, and adds up what its experts gave.
//
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
#include <span>
#include <vector>

#include "chapters/21_moe/experts.h"
#include "chapters/22_expert_parallel/exchange_memory.h"
#include "common/comm/all_to_all_rows.h"
#include "common/comm/comm.h"
#include "common/run/log.h"
#include "kernels/context.h"
#include "kernels/kernels.h"
#include "kernels/narrow.h"
#include "kernels/transfer.h"

namespace ladder {

class Exchange {
 public:
  Exchange(Arena& arena, Comm& world, const ExchangeShape& shape, const ActivationPlan& plan)
      : s(shape), group_(world.split(world.rank() / static_cast<int>(s.ep), world.rank())) {
    if (s.own.E == 0) return;
    for (int64_t i = 0; i < plan.set_count(s.own.L); ++i)
      kept_.push_back(alloc_exchanged(arena, s, i == 0 ? Exchanged{} : kept_.front()));
    const auto packed = [&](const char* name, int64_t rows) {
      return arena.alloc(Mem::Comm, name, Dtype::F32, {rows * s.columns()});
    };
    const auto choices = [&](const char* name, int64_t rows) {
      return arena.shared(Mem::Comm, name, Dtype::I32, {rows, 1 + s.own.k});
    };
    origin_rows_ = packed("origin_rows", s.sent_rows());
    owner_rows_ = packed("owner_rows", s.arrived_tokens());
    choices_out_ = choices("choices.leaving", s.sent_rows());
    choices_in_ = choices("choices.arriving", s.arrived_tokens());
    taken_ = arena.shared(Mem::Workspace, "taken", Dtype::I32, {s.B, s.own.T, s.own.k});
    if (is_narrow(s.dtype))
      joined_ = arena.alloc(Mem::Workspace, "joined", Dtype::F32, {s.B, s.own.T, s.own.C});
  }
  static void add_bytes(MemoryBytes& bytes, const ExchangeShape& s, const ActivationPlan& plan) {
    if (s.own.E == 0) return;
    add_exchanged_bytes(bytes, s, plan);
    bytes[Mem::Comm] += 4 * (s.sent_rows() + s.arrived_tokens()) * (s.columns() + 1 + s.own.k);
    bytes[Mem::Workspace] += 4 * s.B * s.own.T * (s.own.k + (is_narrow(s.dtype) ? s.own.C : 0));
  }

  /// What block l keeps of its exchange, for own tokens with these choices.
  Exchanged acts(size_t l, const Choices& own) const {
    Exchanged x = kept_[l % kept_.size()];
    x.own = own;
    // In a validation this rank may have fewer than B sequences, and others B. So what leaves is
    // cut to this rank's number, and what arrives keeps memory for ep B.
    for (Tensor* of_tokens : {&x.sent.peer, &x.sent.rows.row})
      *of_tokens = of_tokens->first(own.expert.dim(0));
    return x;
  }

  /// The router has chosen x.own. From this: which rows travel, and on the other side x.chosen of
  /// the tokens that arrive. A full expert drops tokens here, sequence by sequence, so they do not
  /// travel.
  void exchange_routing(const Ctx& ctx, const Exchanged& x) {
    const Span span(ctx, "choose_owners");
    drop_and_list_owners(HostCopy::of(ctx, x.own.expert).tensor(), x.sent.peer);
    ctx.kernels->expert_rows(ctx, x.sent.rows, x.sent.peer, /*capacity=*/0);
    ctx.synchronize();  // the host reads these rows
    write_choices(x.sent);
    const std::vector<int32_t> arriving = exchange_counts(*group_, x.sent.counts());
    all_to_all_rows(*group_, choices_in_, arriving, choices_out_, x.sent.begins());
    read_choices(x, arriving);
    ctx.kernels->expert_rows(ctx, x.arrived.rows, x.arrived.peer, /*capacity=*/0);
    ctx.synchronize();
    count(x);
    to_owners(ctx, x, x.chosen.weight, x.own.weight);
  }

  /// to (ep B,T,N): the tokens of `from` (B,T,N) that arrive, of all origins. A token that does not
  /// come is -0, the sum of no terms (kernels/tree.h). No expert reads it.
  void to_owners(const Ctx& ctx, const Exchanged& x, Tensor to, Tensor from) {
    const Span span(ctx, "to_owners");
    travel(ctx, to, x.arrived, owner_rows_, from, x.sent, origin_rows_);
  }
  /// to (B,T,N): the sum over a token's owners of what they have for it in `from` (ep B,T,N), F32.
  /// It is rounded once, to the dtype of `to`. In backward the gradients of a token's k factors w_e
  /// take this way, too: an owner knows those of its own experts, and has +0 for the others. (+0
  /// changes only -0, and no such gradient is -0, because unpermute_backward() begins at +0.)
  void to_origins(const Ctx& ctx, const Exchanged& x, Tensor to, Tensor from) {
    const Span span(ctx, "to_origins");
    const bool wide = to.dtype == from.dtype;
    const Tensor sum = wide ? to : flat(joined_).first(to.size()).view(to.shape);
    travel(ctx, sum, x.sent, origin_rows_, from, x.arrived, owner_rows_);
    if (!wide) ctx.kernels->cast(ctx, to, sum);
  }

  void begin_step() { count_ = {}; }
  void show(Log& log) const { log.count(*group_); }
  /// Of the last step: bytes that this rank has sent to the others of its group, and rows, for each
  /// rank. The predicted bytes are those of the rows that were counted: before tokens have chosen
  /// nobody knows how many there will be.
  void report(Log& log, Comm& world) const {
    if (s.own.E == 0 || log.steps() == 0) return;
    const auto gathered = [&](int64_t own) {
      std::vector<int64_t> all(static_cast<size_t>(world.size()));
      world.all_gather({.ptr = all.data(), .dtype = Dtype::I64, .shape = {world.size()}},
                       {.ptr = &own, .dtype = Dtype::I64, .shape = {1}});
      return all;
    };
    log.extra()["expert_parallel"] = {
        {"ep", s.ep},
        {"sent", {{"predicted", count_.bytes}, {"measured", log.sent_in_step(*group_)}}},
        {"rows", {{"of_owners", gathered(count_.out)}, {"of_experts", gathered(count_.each)}}},
        {"arrived", gathered(count_.in)},
        {"computed", gathered(count_.computed)}};
  }

 private:
  /// Rows of one step, over all blocks, without those that stay on this rank.
  struct Count {
    int64_t bytes = 0;     ///< that this rank sends, of rows and their numbers
    int64_t out = 0;       ///< rows that leave for owners: one for a token and an owner
    int64_t each = 0;      ///< rows that would leave if each token and expert had one
    int64_t in = 0;        ///< rows that arrive from origins
    int64_t computed = 0;  ///< rows of own experts; here rows of own tokens count, too
  };

  /// Counts what one block exchanges in forward: its rows, and the bytes of row numbers and
  /// choices.
  void count(const Exchanged& x) {
    const auto count_if = [](Tensor ids, auto&& counts) {
      return std::count_if(ids.data<int32_t>(), ids.data<int32_t>() + ids.size(), counts);
    };
    count_.out += x.sent.others(group_->rank());
    count_.in += x.arrived.others(group_->rank());
    count_.each += count_if(
        taken_, [&](int32_t e) { return e != kElsewhere && owner_of(e) != group_->rank(); });
    count_.computed += count_if(x.chosen.expert, [](int32_t e) { return e != kElsewhere; });
    count_.bytes += 4 * (s.ep - 1) + 4 * (1 + s.own.k) * x.sent.others(group_->rank());
  }

  int32_t owner_of(int32_t expert) const { return static_cast<int32_t>(expert / s.own.E); }

  /// expert (n,T,k) has the choices of n sequences, perhaps fewer than B. taken_ (B,T,k) = the
  /// same, each in its place. It is kElsewhere where a full expert drops the token, and in the
  /// sequences after the n-th. peer (n,T,w), w = min(k, ep): the owners of what each token takes,
  /// each once, then kElsewhere. Owners ascend, since a token's choices do.
  void drop_and_list_owners(Tensor expert, Tensor peer) {
    const int32_t* chosen = expert.data<int32_t>();
    int32_t *taken = taken_.data<int32_t>(), *owners = peer.data<int32_t>();
    std::fill_n(taken, taken_.size(), kElsewhere);
    std::fill_n(owners, peer.size(), kElsewhere);
    // How many tokens of this sequence have chosen each expert so far.
    std::vector<int64_t> met(static_cast<size_t>(s.own.E * s.ep));
    for (int64_t token = 0; token < expert.dim(0) * s.own.T; ++token) {
      if (token % s.own.T == 0) std::fill(met.begin(), met.end(), 0);  // the next sequence
      int32_t *next = owners + token * s.w(), last = kElsewhere;
      for (int64_t pair = token * s.own.k; pair < (token + 1) * s.own.k; ++pair) {
        if (met[static_cast<size_t>(chosen[pair])]++ >= s.most) continue;
        taken[pair] = chosen[pair];
        // One row for a token and an owner. Choices ascend, so an owner's come one after another.
        if (owner_of(chosen[pair]) != last) *next++ = owner_of(chosen[pair]);
        last = owner_of(chosen[pair]);
      }
    }
  }
  /// For each row that leaves: its token, and which experts of its owner the token takes, numbered
  /// from the owner's first. A choice keeps its place among the token's k.
  void write_choices(const RowMap& sent) const {
    for (int64_t owner = 0; owner < s.ep; ++owner)
      for (int64_t row = sent.begins()[static_cast<size_t>(owner)];
           row < sent.begins()[static_cast<size_t>(owner) + 1]; ++row) {
        // `from` is a place in peer: token w + j for the j-th owner of a token.
        const int64_t token = sent.rows.from.data<int32_t>()[row] / s.w();
        const int32_t* taken = taken_.data<int32_t>() + token * s.own.k;
        int32_t* out = choices_out_.data<int32_t>() + row * (1 + s.own.k);
        *out++ = static_cast<int32_t>(token);
        for (int64_t j = 0; j < s.own.k; ++j) {
          const bool here = taken[j] != kElsewhere && owner_of(taken[j]) == owner;
          *out++ = here ? static_cast<int32_t>(taken[j] % s.own.E) : kElsewhere;
        }
      }
  }
  /// The same on the other side, where sequences of all origins stand one behind the other: those
  /// of rank q of the group are q B to (q + 1) B - 1.
  void read_choices(const Exchanged& x, std::span<const int32_t> arriving) const {
    int32_t *peer = x.arrived.peer.data<int32_t>(), *expert = x.chosen.expert.data<int32_t>();
    std::fill_n(peer, x.arrived.peer.size(), kElsewhere);
    std::fill_n(expert, x.chosen.expert.size(), kElsewhere);
    for (int64_t origin = 0; origin < s.ep; ++origin)
      for (int64_t row = arriving[static_cast<size_t>(origin)];
           row < arriving[static_cast<size_t>(origin) + 1]; ++row) {
        const int32_t* inp = choices_in_.data<int32_t>() + row * (1 + s.own.k);
        CHECK(*inp >= 0 && *inp < s.B * s.own.T, "token {} of {}", *inp, s.B * s.own.T);
        const int64_t token = origin * s.B * s.own.T + *inp;
        peer[token] = static_cast<int32_t>(origin);
        std::copy_n(inp + 1, s.own.k, expert + token * s.own.k);
      }
  }
  /// Packs rows of `from` into `leaving`, exchanges them, and adds up in `to` what is `arriving`.
  /// from, to: a row of N numbers for each token of their side
  void travel(const Ctx& ctx, Tensor to, const RowMap& to_rows, Tensor arriving, Tensor from,
              const RowMap& from_rows, Tensor leaving) {
    // The memory is F32 and has columns for the widest rows. These rows may be narrower.
    const auto as_rows = [&](Tensor memory, const RowMap& all) {
      memory.dtype = from.dtype;
      memory.shape = {all.rows.from.size(), from.dim(2)};
      return memory;
    };
    const Tensor in = as_rows(arriving, to_rows), out = as_rows(leaving, from_rows);
    ctx.kernels->gather_rows(ctx, out, from, from_rows.rows);
    ctx.synchronize();  // the host reads begins
    count_.bytes += from_rows.others(group_->rank()) * out.dim(1) * size_of(out.dtype);
    all_to_all_rows(*group_, in, to_rows.begins(), out, from_rows.begins());
    // Without weights it is a plain sum.
    ctx.kernels->unpermute_forward(ctx, to, in, to_rows.rows, to_rows.peer, {});
  }

  const ExchangeShape s;
  std::unique_ptr<Comm> group_;      ///< ep neighbors, which together have all experts
  std::vector<Exchanged> kept_;      ///< block l has set l % sets
  Tensor origin_rows_, owner_rows_;  ///< packed rows: of this rank as an origin, and as an owner
  Tensor choices_out_, choices_in_;  ///< (rows,1+k) I32
  Tensor taken_;                     ///< (B,T,k) I32, the choices that no full expert has dropped
  Tensor joined_;                    ///< F32 (B,T,C), sums to be rounded, if activations are narrow
  Count count_;                      ///< of this step
};

}  // namespace ladder
