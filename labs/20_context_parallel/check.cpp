// Who has which tokens, the tree of what arrives, and attention around a ring of ranks.
#include "labs/check.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "chapters/20_context_parallel/ring.h"
#include "common/comm/elements.h"
#include "labs/20_context_parallel/ring_meetings.h"
#include "labs/ranks.h"

namespace ladder::lab {
namespace {

struct Case {
  GptConfig gpt;
  int cp;
  Wire wire;
  TokenOrder order;
};

/// What one rank has found.
struct Found {
  std::vector<float> att, lse, dqkv;
  int64_t room = 0, sent = 0;
};

void run_tokens(Sheet& sheet, int64_t cp, TokenOrder order) {
  const int64_t T = 2 * cp * sheet.pick<int64_t>("tokens of a run", {3, 5, 8});
  for (int64_t rank = 0; rank < cp; ++rank) {
    const LocalTokens own{T, cp, rank, order};
    std::string text;
    for (const int i : {0, 1})
      text += fmt::format("{}-{} in rows {}-{}, ", own.tokens(i).begin, own.tokens(i).end,
                          own.rows(i).begin, own.rows(i).end);
    for (int64_t run = 0; run < 2 * cp; ++run) text += fmt::format("{} ", own.pairs(own.run(run)));
    text += fmt::format("{} ", own.pairs({T / 3, T - 1}));  // no whole runs
    sheet.text(fmt::format("tokens/{} ranks, {}: rank {}", cp, to_string(order), rank), text);
  }
}

/// The sum of terms that come in this order, as words: "((0 1)(2 3))".
std::string tree_of(const std::vector<int64_t>& order, int64_t buffers) {
  ArrivalTree tree(std::ssize(order), buffers);
  std::vector<std::string> sums(static_cast<size_t>(buffers));
  for (const int64_t i : order) {
    const size_t at = tree.take();
    sums[at] = fmt::format("{}", i);
    tree.add(i, at, [&](size_t to, size_t from) {
      sums[to] = fmt::format("({} {})", sums[to], sums[from]);
    });
  }
  return sums.at(tree.total());
}

void run_tree(Sheet& sheet, int64_t terms) {
  // From some term on, as in a ring: half of the terms and one more need buffers. This is the most.
  const int64_t first = sheet.pick<int64_t>("first term", {1, 3});
  std::vector<int64_t> order(static_cast<size_t>(terms));
  for (int64_t i = 0; i < terms; ++i) order[static_cast<size_t>(i)] = (first + i) % terms;
  sheet.text("tree/in a ring", tree_of(order, terms / 2 + 1));
  // In any order, with a buffer for each.
  const Random random(sheet.seed(), "order");
  for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random.below(i, i)]);
  sheet.text("tree/shuffled", tree_of(order, terms));
  std::ranges::sort(order, std::greater());
  sheet.text("tree/backwards, with few buffers", tree_of(order, std::bit_width(order.size())));
}

/// Rows of this rank's tokens of x (1,T,N), which is drawn.
Tensor own_rows(const Sheet& sheet, Arena& arena, const LocalTokens& own, const char* name,
                int64_t N) {
  const std::vector<float> all = sheet.normals(name, own.T * N);
  const Tensor part = arena.alloc(Mem::Activation, name, Dtype::F32, {1, own.size(), N});
  for (const int i : {0, 1})
    std::copy_n(all.begin() + own.tokens(i).begin * N, own.tokens(i).size() * N,
                part.data<float>() + own.rows(i).begin * N);
  return part;
}

void attend(const Sheet& sheet, const Case& c, Comm& threads, SeenOfAll& seen, Found& found) {
  RingMeetings meetings(seen, c.wire);
  MeetingComm comm(threads, [&](Operation, const std::function<void()>& transfer) {
    meetings.transfer(transfer);
  });
  const Kernels table = kernels_that_meet();
  OneRank rank(comm, {.token_chunks = kTokenChunks / static_cast<int64_t>(c.cp)});
  auto& [run, arena, ctx] = rank;
  ctx.kernels = &table;
  const LocalTokens own{c.gpt.seq_len, c.cp, comm.rank(), c.order};
  const int64_t before = arena.current()[Mem::Workspace];
  RingAttention ring(arena, ctx, comm, run, {own, c.gpt, Dtype::F32});
  found.room = arena.current()[Mem::Workspace] - before;

  const auto empty = [&](Shape shape) {
    return arena.zeros(Mem::Activation, "empty", Dtype::F32, shape);
  };
  const int64_t C = c.gpt.channels, N = c.gpt.qkv_rows();
  const AttnSaved saved{.qkv = own_rows(sheet, arena, own, "qkv", N),
                        .att = empty({1, own.size(), C}),
                        .lse = empty({1, c.gpt.heads, own.size()}),
                        .angles = {}};
  const AttnGrads d{empty({1, own.size(), N}), own_rows(sheet, arena, own, "datt", C)};
  here = &meetings;
  meetings.begin(messages_of_forward(c.cp));
  ring.forward(ctx, saved);
  found.att = numbers(saved.att);
  found.lse = numbers(saved.lse);
  // Another block, which shares the ring's memory.
  const AttnSaved other{.qkv = own_rows(sheet, arena, own, "qkv of another block", N),
                        .att = empty(saved.att.shape),
                        .lse = empty(saved.lse.shape),
                        .angles = {}};
  meetings.begin(messages_of_forward(c.cp));
  ring.forward(ctx, other);
  meetings.begin(messages_of_backward(c.cp));
  ring.backward(ctx, d, saved);
  found.dqkv = numbers(d.dqkv);
  here = nullptr;
  found.sent = comm.sent();
}

void run_ring(Sheet& sheet, const Case& c, SeenOfAll& seen) {
  const auto found =
      on_ranks<Found>(c.cp, [&](Comm& comm, Found& mine) { attend(sheet, c, comm, seen, mine); });
  for (size_t r = 0; r < found.size(); ++r) {
    sheet.bits(fmt::format("forward/rank {}: att", r), found[r].att);
    sheet.bits(fmt::format("forward/rank {}: lse", r), found[r].lse);
    sheet.bits(fmt::format("backward/rank {}", r), found[r].dqkv);
  }
  const ContextShape s({c.gpt.seq_len, c.cp, 0, TokenOrder::Zigzag}, c.gpt, Dtype::F32);
  const int64_t t = s.own.size(), keys = 4 * t * s.kv();
  // A softmax for each run and a gradient for each rank; nothing is joined before all is there.
  sheet.without_idea("room",
                     4 * t * s.q() + 2 * c.cp * 4 * t * (s.q() + 2 * s.NH) + (4 + c.cp) * keys);
  sheet.count("room", most_of(found, &Found::room));
  // Keys and gradients go around with each other, back to their owner; keys of two blocks.
  sheet.without_idea("sent", c.cp * 4 * c.cp * keys);
  sheet.count("sent", sum_of(found, &Found::sent));
}

}  // namespace

void cases(Sheet& sheet) {
  for (const TokenOrder order : {TokenOrder::Zigzag, TokenOrder::Contiguous})
    for (const int64_t cp : {2, 4})
      sheet.run(fmt::format("tokens of {} ranks, {}", cp, to_string(order)),
                [&] { run_tokens(sheet, cp, order); });
  for (const int64_t terms : {4, 8, 16})
    sheet.run(fmt::format("a tree of {} terms", terms), [&] { run_tree(sheet, terms); });
  SeenOfAll seen;
  const auto grouped = sheet.pick<int64_t>("groups", {1, 2});
  for (const int cp : {2, 4})
    for (const Wire wire : {Wire::Slow, Wire::Fast}) {
      const Case c{
          .gpt = {.name = "lab",
                  .layers = 1,
                  .heads = 4,
                  .channels = sheet.pick<int64_t>("channels", {16, 24}),
                  .seq_len = 64 * cp,
                  .positions = 64 * cp,
                  .vocab = 11,
                  .padded_vocab = 16,
                  .kv_heads = wire == Wire::Slow ? 4 : grouped},
          .cp = cp,
          .wire = wire,
          .order = cp == 2 && wire == Wire::Fast ? TokenOrder::Contiguous : TokenOrder::Zigzag};
      sheet.run(fmt::format("{} ranks, a {} wire, {}", cp, wire == Wire::Slow ? "slow" : "fast",
                            to_string(c.order)),
                [&] { run_ring(sheet, c, seen); });
    }
  // A case of its own: figures of the others count where a message is waited for too early.
  sheet.run("2 and 4 ranks, both wires", [&] {
    for (size_t i = 0; i < kMessages.size(); ++i)
      sheet.text(fmt::format("hidden/{}", kMessages[i]), seen[i].verdict());
  });
}

}  // namespace ladder::lab
