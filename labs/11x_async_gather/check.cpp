// Two layers whose tokens ranks split, forward and backward: what comes out, what is sent and held,
// and which transfer is under way during which product.
#include "labs/check.h"

#include <array>
#include <chrono>
#include <cstddef>
#include <string>
#include <vector>

#include "chapters/11_tensor_parallel/sequence_parallel.h"
#include "labs/11x_async_gather/async_gather.h"
#include "labs/11x_async_gather/meetings.h"
#include "labs/ranks.h"

namespace ladder::lab {
namespace {

constexpr int64_t kLayers = 2;
constexpr int64_t kRoom = 4;                           ///< sequences that buffers have room for
constexpr std::array<int64_t, 2> kMicroBatches{3, 2};  ///< sequences of each

struct Case {
  int ranks;
  Wire wire;
  int64_t T, C, columns;  ///< positions; channels; columns of a rank

  GptConfig gpt() const {
    GptConfig gpt;
    gpt.seq_len = T;
    gpt.channels = C;
    return gpt;
  }
  int64_t whole_bytes(int64_t sequences) const { return 4 * sequences * T * C; }
};

/// What one rank has found.
struct Found {
  std::vector<Row> forward, backward;
  int64_t sent = 0, room = 0;
};

/// The layer as chapter 11 has it: each transfer is waited for.
class ByChapter {
 public:
  ByChapter(Arena& arena, const Ctx& ctx, Comm& comm, const Case& c)
      : tokens_(arena, ctx, comm, c.gpt(), Dtype::F32, kRoom) {}

  void forward(const Ctx& ctx, Tensor out, Tensor inp, Tensor w) {
    head_forward(ctx, out, tokens_.gather_inp(ctx, inp), w);
  }
  void backward(const Ctx& ctx, Tensor dinp, Tensor dw, Tensor dout, Tensor inp, Tensor w,
                Into into) {
    head_backward_input(ctx, tokens_.summand().first(dinp.dim(0)), dout, w);
    tokens_.reduce_scatter(ctx, dinp);
    head_backward_weight(ctx, dw, dout, tokens_.gather_inp(ctx, inp), into);
  }

 private:
  SequenceParallel tokens_;
};

Row row(int64_t k, int64_t l, const char* name, const Tensor& x) {
  return {fmt::format("micro-batch {}, layer {}, {}", k, l, name), numbers(x)};
}

/// Forward of all layers, then backward of all, of each micro-batch. Before each forward of n
/// sequences begin(n) is called, and begin(0) before each backward.
template <class Layer, class Begin>
void train(const Sheet& sheet, const Case& c, const Ctx& ctx, int rank, Arena& arena, Layer& layer,
           Begin&& begin, Found& found) {
  const auto tensor = [&](const char* name, Shape shape, int64_t l) {
    const Tensor x = arena.alloc(Mem::Activation, name, Dtype::F32, shape);
    sheet.draw(x, name, static_cast<uint64_t>(100 * l + rank));
    return x;
  };
  std::vector<Tensor> w, dw;
  for (int64_t l = 0; l < kLayers; ++l) {
    w.push_back(tensor("w", {c.columns, c.C}, l));
    dw.push_back(arena.alloc(Mem::Grad, "dw", Dtype::F32, {c.columns, c.C}));
  }
  for (int64_t k = 0; k < std::ssize(kMicroBatches); ++k) {
    const int64_t n = kMicroBatches[static_cast<size_t>(k)];
    std::vector<Tensor> inp;
    for (int64_t l = 0; l < kLayers; ++l) {
      inp.push_back(tensor("inp", {n, c.T / c.ranks, c.C}, 10 * k + l));
      const Tensor out = arena.alloc(Mem::Activation, "out", Dtype::F32, {n, c.T, c.columns});
      begin(n);
      layer.forward(ctx, out, inp.back(), w[static_cast<size_t>(l)]);
      found.forward.push_back(row(k, l, "out", out));
    }
    for (int64_t l = kLayers - 1; l >= 0; --l) {
      const auto at = static_cast<size_t>(l);
      const Tensor dinp = arena.alloc(Mem::Workspace, "dinp", Dtype::F32, inp[at].shape);
      const Tensor dout = tensor("dout", {n, c.T, c.columns}, 10 * k + l);
      begin(0);
      layer.backward(ctx, dinp, dw[at], dout, inp[at], w[at], k == 0 ? Into::Write : Into::Add);
      found.backward.push_back(row(k, l, "dinp", dinp));
      found.backward.push_back(row(k, l, "dw", dw[at]));
    }
  }
}

void by_chapter(const Sheet& sheet, const Case& c, Comm& comm, Found& found) {
  OneRank rank(comm, {.leaves = kLeaves / c.ranks});
  auto& [run, arena, ctx] = rank;
  ByChapter layer(arena, ctx, comm, c);
  train(
      sheet, c, ctx, comm.rank(), arena, layer, [](int64_t) {}, found);
}

void by_student(const Sheet& sheet, const Case& c, Comm& threads, SeenOfAll& seen, Found& found) {
  Meetings meetings(seen, c.wire);
  MeetingComm comm(threads, [&](Operation operation, const std::function<void()>& transfer) {
    meetings.transfer(operation, transfer);
  });
  Arena room;
  const Kernels table = kernels_that_meet();
  OneRank rank(comm, {.leaves = kLeaves / c.ranks});
  auto& [run, arena, ctx] = rank;
  ctx.kernels = &table;
  CommStream stream(arena, ctx, comm, run, Reduction::Halving, c.T * c.C,
                    /*with_thread=*/c.ranks > 1);
  ColumnLinear layer(room, stream, kRoom, c.T, c.C);
  here = c.ranks > 1 ? &meetings : nullptr;
  // Jobs that a call has started and not waited for end here, after its results have been read.
  const auto begin = [&](int64_t sequences) {
    drain(stream);
    if (here) here->begin(sequences);
  };
  train(sheet, c, ctx, comm.rank(), arena, layer, begin, found);
  begin(0);
  here = nullptr;
  found.sent = stream.group().statistics().wire_bytes();
  found.room = room.peak().total();
}

/// Writes what all ranks have computed.
void write(Sheet& sheet, const std::vector<Found>& found) {
  for (size_t r = 0; r < found.size(); ++r) {
    write(sheet, "forward", r, found[r].forward);
    write(sheet, "backward", r, found[r].backward);
  }
}

void run_case(Sheet& sheet, const Case& c, SeenOfAll& seen) {
  const int64_t room = 2 * c.whole_bytes(kRoom);
  int64_t once = 0;  // bytes of one transfer of each layer in each micro-batch, of all ranks
  for (const int64_t n : kMicroBatches) once += kLayers * (c.ranks - 1) * c.whole_bytes(n);
  sheet.wanted([&] {
    write(sheet,
          on_ranks<Found>(c.ranks, [&](Comm& comm, Found& f) { by_chapter(sheet, c, comm, f); }));
    sheet.count("room", room);
    if (c.ranks > 1) sheet.count("sent", 3 * once);
  });
  // Without the idea all positions are kept for backward, and the gradient is all-reduced.
  sheet.without_idea("room", room + kLayers * c.whole_bytes(kMicroBatches[0]));
  sheet.without_idea("sent", 4 * once);

  // Transfers that do not meet what they wait for take a second each.
  const auto found = on_ranks<Found>(
      c.ranks, [&](Comm& comm, Found& f) { by_student(sheet, c, comm, seen, f); },
      std::chrono::seconds(10));
  write(sheet, found);
  sheet.count("room", most_of(found, &Found::room));
  if (c.ranks == 1) return;
  sheet.count("sent", sum_of(found, &Found::sent));
}

/// A separate case: where a transfer is waited for too early, the figures of the other cases still
/// count.
void write_seen(Sheet& sheet, const SeenOfAll& seen) {
  sheet.wanted([&] {
    for (const char* transfer : kTransfers)
      sheet.text(fmt::format("waits/{}", transfer), kUnderWay);
  });
  for (size_t i = 0; i < kTransfers.size(); ++i)
    sheet.text(fmt::format("waits/{}", kTransfers[i]), seen[i].verdict());
}

}  // namespace

void cases(Sheet& sheet) {
  SeenOfAll seen;
  for (const int ranks : {1, 2, 4})
    for (const Wire wire : {Wire::Slow, Wire::Fast}) {
      if (ranks == 1 && wire == Wire::Fast) continue;  // nothing travels
      const Case c{.ranks = ranks,
                   .wire = wire,
                   .T = sheet.pick<int64_t>("positions", {8, 16}),
                   .C = sheet.pick<int64_t>("channels", {8, 12, 20}),
                   .columns = sheet.pick<int64_t>("columns", {8, 16, 24})};
      const char* on = ranks == 1 ? "" : wire == Wire::Slow ? ", a slow wire" : ", a fast wire";
      sheet.run(fmt::format("{} rank{}{}", ranks, ranks == 1 ? "" : "s", on),
                [&] { run_case(sheet, c, seen); });
    }
  sheet.run("2 and 4 ranks, both wires", [&] { write_seen(sheet, seen); });
}

}  // namespace ladder::lab
