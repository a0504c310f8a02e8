// --context ring: keys and values go around a ring of ranks. Each rank computes with those that it
// has at the moment (Liu et al., "Ring Attention", arXiv 2310.01889). The project
// ring-flash-attention has it in zig-zag order, too.
//
//              rank 0       rank 1       rank 2       rank 3
//   step 0     keys of 0    keys of 1    keys of 2    keys of 3
//   step 1     keys of 3    keys of 0    keys of 1    keys of 2
//   ...        while attention works with these, the next ones arrive
//
// A rank never holds the keys of more than two ranks. Each run of keys gives a partial softmax over
// these keys. Partial softmaxes are merged as a tree by the index of the run (arrival_tree.h), so
// every ring has the bits of one rank. The price is memory for partial softmaxes that wait: cp + 1
// of them, of T / cp queries each, a little more than one of all T queries.
//
// In backward, keys and values go around once more. A rank's queries add to dk and dv of the keys
// that pass. These parts go straight to the rank that owns the keys, and that rank sums them as a
// tree by rank. The message of one step travels while the next step writes the next message. So
// there are two buffers.
#pragma once

#include <array>
#include <vector>

#include "chapters/20_context_parallel/arrival_tree.h"
#include "chapters/20_context_parallel/pieces.h"
#include "common/run/comm_stream.h"

namespace ladder {

class RingAttention : public PieceAttention {
 public:
  /// @param group the ranks that split each sequence
  RingAttention(Arena& arena, const Ctx& ctx, Comm& group, const RunOptions& run,
                const ContextShape& shape)
      : PieceAttention(arena, shape),
        // The ring only sends. It reduces nothing, so any reduction will do, without memory.
        stream_(arena, ctx, group, run, Reduction::Halving, /*elements=*/0, /*with_thread=*/true) {
    const auto alloc = [&](const char* name, Dtype dtype) {
      return arena.alloc(Mem::Workspace, name, dtype, {1, s.own.size(), s.kv()});
    };
    for (Tensor& kv : kv_) kv = alloc("context.kv", s.dtype);
    for (Tensor& dkv : leaving_) dkv = alloc("context.leaving", Dtype::F32);
    for (int64_t i = 0; i < partial_softmaxes(s); ++i)
      softmaxes_.push_back(alloc_softmax(arena, s));
    for (int64_t i = 0; i < partial_gradients(s); ++i)
      gradients_.push_back(alloc("context.dkv", Dtype::F32));
  }

  static void add_bytes(MemoryBytes& bytes, const ContextShape& s) {
    const int64_t keys = s.own.size() * s.kv();
    bytes[Mem::Workspace] += query_bytes(s) + partial_softmaxes(s) * softmax_bytes(s) +
                             (2 * size_of(s.dtype) + 4 * (2 + partial_gradients(s))) * keys;
  }

  void forward(const Ctx& ctx, const AttnSaved& saved) override {
    ArrivalTree tree(2 * s.own.cp, std::ssize(softmaxes_));
    take_queries(ctx, saved.qkv);
    take_keys(ctx, kv_[0], saved.qkv);
    for (int64_t step = 0; step < s.own.cp; ++step) {
      Pending next = pass_on(step);
      for (const int i : {0, 1}) {
        const size_t at = tree.take();
        forward_piece(ctx, softmaxes_[at], keys(step, i), s.own.run(run_at(step, i)));
        tree.add(run_at(step, i), at, [&](size_t to, size_t from) { merge(ctx, to, from); });
      }
      wait(ctx, next, "wait_for_keys");
    }
    const PartialSoftmax& sum = softmaxes_[tree.total()];
    ctx.kernels->attention_finish(ctx, saved.att, saved.lse, sum.o, sum.m, sum.l);
  }

  void backward(const Ctx& ctx, const AttnGrads& d, const AttnSaved& saved) override {
    ArrivalTree dq(2 * s.own.cp, std::ssize(softmaxes_));
    ArrivalTree dkv(s.own.cp, std::ssize(gradients_));
    take_queries(ctx, saved.qkv);
    take_keys(ctx, kv_[0], saved.qkv);
    size_t arriving = dkv.take();  // to be added next: first this rank's own, then what has come
    Pending sent;
    for (int64_t step = 0; step < s.own.cp; ++step) {
      Pending next = pass_on(step);
      const Tensor part = step == 0 ? gradients_[arriving] : leaving_[parity(step)];
      for (const int i : {0, 1}) {
        const size_t at = dq.take();
        backward_piece(ctx, softmaxes_[at].o, rows_of(part, s.own.rows(i)), d, saved, keys(step, i),
                       s.own.run(run_at(step, i)));
        dq.add(run_at(step, i), at,
               [&](size_t to, size_t from) { add(ctx, softmaxes_[to].o, softmaxes_[from].o); });
      }
      wait(ctx, next, "wait_for_keys");
      if (step > 0) {
        // The keys of rank(-step) are here now, so the part that this step has written goes to that
        // rank. This rank's keys are at rank(step), so a part for them comes from there. Each step
        // (1) computes into a free buffer of leaving_; (2) waits for the exchange of the step
        // before, and adds what it has brought (in step 1: this rank's own part of step 0, no
        // message); (3) exchanges. So in step 3 leaving_[1] is free: step 2 has waited for the
        // exchange of step 1. The last exchange is waited for after the loop. With cp 4:
        //
        //   step   writes              adds the part of     sends
        //   0      its own gradients   -                    -
        //   1      leaving_[1]         step 0               leaving_[1]
        //   2      leaving_[0]         step 1               leaving_[0]
        //   3      leaving_[1]         step 2               leaving_[1]
        //   after the loop             step 3
        join(ctx, dkv, step - 1, arriving, sent);
        arriving = dkv.take();
        sent = exchange("ring_gradients", part, rank(-step), gradients_[arriving], rank(step));
      }
    }
    join(ctx, dkv, s.own.cp - 1, arriving, sent);
    put_queries(ctx, d.dqkv, softmaxes_[dq.total()].o);
    put_keys(ctx, d.dqkv, gradients_[dkv.total()]);
  }

  void show(Log& log) override { stream_.show(log); }
  int64_t sent(const Log& log) const override { return log.sent_in_step(stream_.group()); }

  /// How many buffers a rank needs at most, for the terms that wait and for the next one. The first
  /// function is for a tree of 2 cp runs, the second for a tree of cp ranks. Both were found by
  /// trying all ranks with cp 2, 4 and 8; ArrivalTree::take() fails if it were more.
  static int64_t partial_softmaxes(const ContextShape& s) { return s.own.cp + 1; }
  static int64_t partial_gradients(const ContextShape& s) { return s.own.cp / 2 + 1; }

 private:
  /// The rank `step` places further along the ring. In step n, a rank has the keys of rank(-n).
  int64_t rank(int64_t step) const { return (s.own.rank + step + s.own.cp) % s.own.cp; }
  /// The number of the early (0) or late (1) run of the keys of this step.
  int64_t run_at(int64_t step, int i) const {
    return s.own.runs_of(rank(-step))[static_cast<size_t>(i)];
  }
  /// The keys and values of that run.
  Tensor keys(int64_t step, int i) const { return rows_of(kv_[parity(step)], s.own.rows(i)); }
  /// Which of two buffers a step uses.
  static size_t parity(int64_t step) { return static_cast<size_t>(step % 2); }

  /// Sends the keys of this step to the next rank, while those of the next step arrive. After the
  /// last step nobody needs them.
  Pending pass_on(int64_t step) {
    if (step + 1 == s.own.cp) return {};
    return exchange("ring_keys", kv_[parity(step)], rank(1), kv_[parity(step + 1)], rank(-1));
  }
  Pending exchange(const char* name, Tensor out, int64_t to, Tensor inp, int64_t from) {
    return stream_.run([=](const Ctx& ctx, Collectives& collectives) {
      const Span span(ctx, name);
      collectives.comm().exchange(out, static_cast<int>(to), inp, static_cast<int>(from));
    });
  }
  static void wait(const Ctx& ctx, Pending& pending, const char* name) {
    const Span span(ctx, name);
    pending.wait();
  }

  void merge(const Ctx& ctx, size_t to, size_t from) const {
    const PartialSoftmax &a = softmaxes_[to], &b = softmaxes_[from];
    ctx.kernels->attention_merge(ctx, a.o, a.m, a.l, b.o, b.m, b.l);
  }
  static void add(const Ctx& ctx, const Tensor& to, const Tensor& from) {
    ctx.kernels->add(ctx, to, to, from);
  }
  /// Adds the term that came from rank(step) to the tree of dk and dv. It first waits until that
  /// term has arrived and until this rank's own message has left.
  void join(const Ctx& ctx, ArrivalTree& dkv, int64_t step, size_t arrived, Pending& sent) const {
    wait(ctx, sent, "wait_for_key_gradients");
    dkv.add(rank(step), arrived,
            [&](size_t to, size_t from) { add(ctx, gradients_[to], gradients_[from]); });
  }

  CommStream stream_;                      ///< of this ring; it has a thread of its own
  std::array<Tensor, 2> kv_, leaving_;     ///< (1,t,2*NKV*HS), [n % 2] in step n; leaving_ is F32
  std::vector<PartialSoftmax> softmaxes_;  ///< those that wait; in backward, o is dq
  std::vector<Tensor> gradients_;          ///< of own keys, those that wait; shaped as leaving_
};

}  // namespace ladder
