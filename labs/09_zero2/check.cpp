// Gradients of a small model, drawn section by section as backward would write them, in
// micro-steps.
#include "labs/check.h"

#include <chrono>
#include <cstddef>
#include <semaphore>
#include <string>
#include <vector>

#include "chapters/09_zero2/zero2.h"
#include "labs/ranks.h"

namespace ladder::lab {
namespace {

constexpr std::chrono::seconds kHeld{1};  // then what is held goes on
constexpr std::chrono::milliseconds kSlow{1};

struct Case {
  int ranks;
  int64_t GA;
  GptConfig gpt;
  DdpOptions ddp;

  ParamLayout params() const { return ParamLayout(gpt, ranks); }
  ParamLayout grads() const { return params().grads(); }
  std::string name() const {
    return fmt::format("{} ranks, {} micro-steps, {}", ranks, GA, to_string(ddp.mode));
  }
};

/// What one rank has found.
struct Found {
  std::vector<Row> sums;          ///< of each step
  std::binary_semaphore next{0};  ///< the next section has a buffer
  bool late = false;              ///< it got one only when the one before had been reduced
  int64_t sent = 0, sent_by_first = 0, grad = 0, workspace = 0;
};

/// The embedding has a stream of its own, as experts have in chapter 22.
struct OnTwoStreams : ShardedGrads {
  template <class... Args>
  OnTwoStreams(CommStream& first_, Args&&... args) : ShardedGrads(args...), first(first_) {}
  CommStream& stream_of(int64_t s) override { return s == 0 ? first : ShardedGrads::stream_of(s); }

  CommStream& first;
};

/// The gradients of section s, from its first parameter on, in the buffer that they have.
Tensor buffer_of(const GptTensors& view, const Case& c, int64_t s) {
  const ParamLayout grads = c.grads();
  const Tensor first = s == 0 ? view.embed.wte
                       : s + 1 == grads.sections()
                           ? (c.gpt.tied_head ? view.head_w : view.norm.w)
                           : view.blocks[static_cast<size_t>(s - 1)].norm1.w;
  CHECK(first, "the view has no gradients of section {}", s);
  return {.ptr = first.ptr, .dtype = Dtype::F32, .shape = {grads.section(s).size()}};
}

/// The second step has a slow wire: this rank goes on before reductions have ended.
void take_step(const Sheet& sheet, const Case& c, const Ctx& ctx, CommStream& stream,
               OnTwoStreams& grads, int rank, uint64_t step, Found& found) {
  const int64_t last = c.grads().sections() - 1;
  Pending held, slow;
  bool holds = false;
  for (int64_t k = 0; k < c.GA; ++k) {
    grads.begin(k, c.GA);
    for (int64_t s = last; s >= 0; --s) {
      grads.begin_section(ctx, s);
      if (holds && s == last - 1) found.next.release();
      const Tensor buffer = buffer_of(grads.view(), c, s);
      sheet.draw(buffer, "gradients",
                 1000 * step + static_cast<uint64_t>(100 * k + 10 * s + int64_t{100000} * rank));
      if (step == 1) slow = delay(grads.stream_of(s), kSlow);
      // This job holds up all later reductions until the next section has a buffer.
      holds = stream.has_thread() && step == 0 && k + 1 == c.GA;
      if (holds && s == last)
        held = stream.run(
            [&](const Ctx&, Collectives&) { found.late |= !found.next.try_acquire_for(kHeld); });
      grads.end_section(s);
    }
    grads.end();
  }
  found.sums.push_back({fmt::format("step {}", step + 1), numbers(grads.sum(ctx).tensor)});
  held.wait();
  slow.wait();
}

void train(const Sheet& sheet, const Case& c, Comm& comm, Found& found) {
  OneRank rank(comm);
  auto& [run, arena, ctx] = rank;
  const ParamLayout params = c.params(), shard = params.shard(comm.rank());
  CommStream stream = open_comm_stream(arena, ctx, comm, run, c.ddp, params.largest_section()),
             first = open_comm_stream(arena, ctx, comm, run, c.ddp, params.largest_section());
  const MemoryBytes before = arena.current();
  OnTwoStreams grads(first, arena, stream, params, shard, AccumulateOptions{}, c.GA);
  found.grad = arena.current()[Mem::Grad] - before[Mem::Grad];
  found.workspace = arena.current()[Mem::Workspace] - before[Mem::Workspace];
  const auto sent = [](const CommStream& one) { return one.group().statistics().wire_bytes(); };
  int64_t others = 0, by_first = 0;
  for (uint64_t step = 0; step < 2; ++step) {
    others = sent(stream), by_first = sent(first);
    take_step(sheet, c, ctx, stream, grads, comm.rank(), step, found);
  }
  found.sent_by_first = sent(first) - by_first;
  found.sent = sent(stream) - others + found.sent_by_first;
}

/// Whether a rank has waited for the communication stream too early, in all cases together.
struct Waits {
  bool seen = false, late = false;
};

void run_case(Sheet& sheet, const Case& c, Waits& waits) {
  const auto found =
      on_ranks<Found>(c.ranks, [&](Comm& comm, Found& mine) { train(sheet, c, comm, mine); });
  for (size_t r = 0; r < found.size(); ++r) {
    write(sheet, "sums", r, found[r].sums);
    waits.late |= found[r].late;
  }
  waits.seen |= c.ddp.overlaps(c.ranks);
  const int64_t P = c.grads().size();
  sheet.without_idea("memory", 4 * P * TreeCounter::buffers(c.GA));  // as in chapter 08
  sheet.count("memory/in Mem::Grad", most_of(found, &Found::grad));
  sheet.count("memory/in Mem::Workspace", most_of(found, &Found::workspace));
  sheet.without_idea("sent", c.GA * 8 * P * (c.ranks - 1));  // all-reduces
  sheet.count("sent/by both streams", sum_of(found, &Found::sent));
  sheet.count("sent/by that of the embedding", sum_of(found, &Found::sent_by_first));
}

void run_formula(Sheet& sheet, const std::vector<Case>& all) {
  for (const Case& c : all) {
    const ParamLayout params = c.params();
    MemoryBytes bytes;
    ShardedGrads::add_bytes(bytes, params, params.shard(0), {}, c.GA, c.ddp.overlaps(c.ranks));
    sheet.text("formula/memory: " + c.name(),
               fmt::format("{} and {}", bytes[Mem::Grad], bytes[Mem::Workspace]));
    for (const char* name : {"fp32", "bf16"}) {
      PrecisionOptions precision;
      precision.name = name;
      const auto sent = zero2_traffic(params, c.ddp, precision, c.GA);
      sheet.text(fmt::format("formula/sent: {}, {}", c.name(), name),
                 sent ? fmt::format("{}", *sent) : "none");
    }
  }
  DdpOptions uneven;
  uneven.reduction = Reduction::Tree;
  const auto sent = zero2_traffic(all.front().params(), uneven, {}, 2);
  sheet.text("formula/an uneven reduction", sent ? fmt::format("{}", *sent) : "none");
}

}  // namespace

void cases(Sheet& sheet) {
  std::vector<Case> all;
  Waits waits;
  for (const int ranks : {2, sheet.pick("ranks", {4, 8})})
    for (const int64_t GA : {int64_t{1}, sheet.pick<int64_t>("micro-steps", {4, 6, 7})})
      for (const DdpMode mode : {DdpMode::Bucketed, DdpMode::Overlapped}) {
        Case c{.ranks = ranks, .GA = GA, .gpt = small_gpt(), .ddp = {}};
        c.gpt.layers = sheet.pick<int64_t>("layers", {5, 6});
        c.gpt.positions = sheet.pick<int64_t>("positions", {5, 9});
        c.gpt.tied_head = ranks > 2;
        c.ddp.mode = mode;
        sheet.run(c.name(), [&] { run_case(sheet, c, waits); });
        all.push_back(c);
      }
  // A separate case: where too much is waited for, the figures of the other cases still count.
  sheet.run("overlapped", [&] {
    sheet.text("waits/the next section", !waits.seen  ? "not seen"
                                         : waits.late ? "waits for the section before it"
                                                      : "has a buffer at once");
  });
  sheet.run("by formula", [&] { run_formula(sheet, all); });
}

}  // namespace ladder::lab
