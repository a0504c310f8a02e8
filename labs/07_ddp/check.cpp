// All-reduces of drawn numbers, and the buckets of a small model.
#include "labs/check.h"

#include <chrono>
#include <cstddef>
#include <string>
#include <vector>

#include "chapters/07_ddp/ddp.h"
#include "common/comm/reduction.h"
#include "labs/messages_only.h"
#include "labs/ranks.h"

namespace ladder::lab {
namespace {

constexpr std::chrono::milliseconds kSlow{20};

/// What one rank has found.
struct Found {
  std::vector<float> numbers;
  int64_t sent = 0, messages = 0;
  std::string early;  ///< bytes sent after each section, in order

  void add(const Tensor& more) {
    numbers.insert(numbers.end(), more.data<float>(), more.data<float>() + more.size());
  }
};

void fill(const Sheet& sheet, const Tensor& part, int rank, int64_t stream) {
  sheet.draw(part, "gradients", static_cast<uint64_t>(1000 * stream + rank + 1));
}

/// One all-reduce of n numbers.
std::vector<Found> run_reduction(Sheet& sheet, Reduction reduction, int ranks, int64_t n) {
  auto found = on_ranks<Found>(ranks, [&](Comm& threads, Found& mine) {
    CountingComm comm(threads, /*per_node=*/1);
    OneRank rank(comm);
    const Tensor data = rank.arena.alloc(Mem::Grad, "data", Dtype::F32, {n});
    fill(sheet, data, comm.rank(), n);
    Collectives collectives(comm, rank.ctx, reduction, rank.arena, Dtype::F32, n);
    collectives.all_reduce(data);
    mine.add(data);
    mine.sent = comm.statistics().wire_bytes();
    mine.messages = comm.messages();
  });
  for (size_t r = 0; r < found.size(); ++r)
    sheet.bits(fmt::format("{}/rank {}", to_string(reduction), r), found[r].numbers);
  sheet.without_idea("sent", 4 * (ranks - 1) * n);
  sheet.count("sent", most_of(found, &Found::sent));
  return found;
}

/// Two steps in which sections become ready from the last down, each filled just before. wait() of
/// the second finds messages behind a job that takes long.
void train(const Sheet& sheet, const ParamLayout& layout, const DdpOptions& options, Comm& comm,
           Found& found) {
  OneRank rank(comm);
  auto& [run, arena, ctx] = rank;
  CommStream stream =
      open_comm_stream(arena, ctx, comm, run, options, Ddp::largest_message(layout, options));
  Ddp ddp(stream, layout, options);
  const Tensor grads = arena.zeros(Mem::Grad, "grads", Dtype::F32, {layout.size()});
  for (int64_t step = 0; step < 2; ++step) {
    for (int64_t s = layout.sections(); s-- > 0;) {
      fill(sheet, layout.section_of(grads, s), comm.rank(), 10 * step + s);
      const bool slow = stream.has_thread() && step == 1 && s == 0;
      if (slow) static_cast<void>(delay(stream, kSlow));
      ddp.section_done(grads, s);
      if (slow) break;
      found.early += fmt::format(" {}", sent_so_far(stream));
    }
    ddp.wait(ctx, grads);
    found.add(grads);
  }
}

void run_buckets(Sheet& sheet, int ranks, const DdpOptions& options) {
  GptConfig gpt = small_gpt();
  gpt.layers = sheet.pick<int64_t>("layers", {2, 3});
  gpt.channels = sheet.pick<int64_t>("channels", {8, 12});
  const ParamLayout layout(gpt);
  const auto found = on_ranks<Found>(
      ranks, [&](Comm& comm, Found& mine) { train(sheet, layout, options, comm, mine); });
  for (size_t r = 0; r < found.size(); ++r) {
    sheet.bits(fmt::format("buckets/rank {}", r), found[r].numbers);
    sheet.text(fmt::format("early/rank {}", r), found[r].early);
  }
}

}  // namespace

void cases(Sheet& sheet) {
  for (const int64_t n :
       {sheet.pick<int64_t>("few", {5, 64, 200}), sheet.pick<int64_t>("n", {999, 1024})}) {
    for (const int ranks : {2, sheet.pick("ranks", {3, 5}), 4})
      sheet.run(fmt::format("ring of {}, {} numbers", ranks, n),
                [&] { run_reduction(sheet, Reduction::Ring, ranks, n); });
    for (const int ranks : {2, 4, 8}) {
      const std::string name = fmt::format("halving on {}, {} numbers", ranks, n);
      std::vector<Found> found;
      sheet.run(name, [&] { found = run_reduction(sheet, Reduction::Halving, ranks, n); });
      if (ranks == 2) continue;
      // Chunk by chunk the bytes are the same: as many messages as in a ring.
      sheet.run(name + ", its messages", [&] {
        sheet.without_idea("sent", 2 * (ranks - 1));
        sheet.count("sent", most_of(found, &Found::messages));
      });
    }
  }
  // Buckets of one section, of some, and of all.
  for (const double kib : {0.0, sheet.pick("bucket", {6.0, 9.0}), 1e3})
    for (const DdpMode mode : {DdpMode::Overlapped, DdpMode::Bucketed}) {
      DdpOptions options;
      options.mode = mode;
      options.bucket_mb = kib / 1024;
      // Buckets can be right while halving is not: this reduction is not the student's.
      options.reduction = Reduction::Naive;
      const int ranks = sheet.pick("ranks of buckets", {2, 4});
      sheet.run(fmt::format("{}, buckets of {} KiB, {} ranks", to_string(mode), kib, ranks),
                [&] { run_buckets(sheet, ranks, options); });
    }
}

}  // namespace ladder::lab
