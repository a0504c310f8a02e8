// All-reduces of drawn numbers, and the buckets of a small model.
#include "labs/check.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <string>
#include <vector>

#include "chapters/07_ddp/ddp.h"
#include "common/comm/reduction.h"
#include "common/comm/run_ranks.h"
#include "common/run/backend.h"

namespace ladder::lab {
namespace {

constexpr std::chrono::seconds kPatience{5};

/// A row of numbers for each rank, and what it has sent.
struct Found {
  explicit Found(int ranks)
      : numbers(static_cast<size_t>(ranks)),
        sent(static_cast<size_t>(ranks)),
        early(static_cast<size_t>(ranks)) {}

  std::vector<std::vector<float>> numbers;
  std::vector<int64_t> sent;
  std::vector<std::string> early;  ///< bytes sent after each section, in order

  void add(int rank, const Tensor& more) {
    const float* begin = more.data<float>();
    auto& all = numbers[static_cast<size_t>(rank)];
    all.insert(all.end(), begin, begin + more.size());
  }
};

void fill(const Sheet& sheet, const Tensor& part, int rank, int64_t stream) {
  std::ranges::copy(
      sheet.normals("gradients", part.size(), static_cast<uint64_t>(1000 * stream + rank + 1)),
      part.data<float>());
}

/// One all-reduce of n numbers.
void run_reduction(Sheet& sheet, Reduction reduction, int ranks, int64_t n) {
  Found found(ranks);
  const auto body = [&](Comm& comm) {
    RunOptions run;
    run.threads = 1;
    Arena arena;
    const Ctx ctx = make_ctx(run, arena, nullptr, {.comm = &comm});
    const Tensor data = arena.alloc(Mem::Grad, "data", Dtype::F32, {n});
    fill(sheet, data, comm.rank(), n);
    Reducer reducer(comm, ctx, reduction, arena, Dtype::F32, n);
    reducer.all_reduce(data);
    found.add(comm.rank(), data);
    found.sent[static_cast<size_t>(comm.rank())] = comm.statistics().wire_bytes();
  };
  run_threads(ranks, body, kPatience);
  for (int r = 0; r < ranks; ++r)
    sheet.bits(fmt::format("{}/rank {}", to_string(reduction), r),
               found.numbers[static_cast<size_t>(r)]);
  sheet.without_idea("sent", 4 * (ranks - 1) * n);
  sheet.count("sent", std::ranges::max(found.sent));
}

/// Two steps in which sections become ready from the last down, each filled just before.
void train(const Sheet& sheet, const ParamLayout& layout, const DdpOptions& options, Comm& comm,
           Found& found) {
  RunOptions run;
  run.ranks = comm.size();
  run.threads = 1;
  Arena arena;
  const Ctx ctx = make_ctx(run, arena, nullptr, {.comm = &comm});
  CommStream stream =
      open_comm_stream(arena, ctx, comm, run, options, Ddp::largest_message(layout, options));
  Ddp ddp(stream, layout, options);
  const Tensor grads = arena.zeros(Mem::Grad, "grads", Dtype::F32, {layout.size()});
  for (int64_t step = 0; step < 2; ++step) {
    for (int64_t s = layout.sections(); s-- > 0;) {
      fill(sheet, layout.section_of(grads, s), comm.rank(), 10 * step + s);
      ddp.ready(grads, s);
      // Jobs run in order: this one sees what was started before it.
      int64_t sent = 0;
      stream
          .run([&](const Ctx&, Reducer& reducer) {
            sent = reducer.comm().statistics().wire_bytes();
          })
          .wait();
      found.early[static_cast<size_t>(comm.rank())] += fmt::format(" {}", sent);
    }
    ddp.finish(ctx, grads);
    found.add(comm.rank(), grads);
  }
}

void run_buckets(Sheet& sheet, int ranks, const DdpOptions& options) {
  const GptConfig gpt{.name = "lab",
                      .layers = sheet.pick<int64_t>("layers", {2, 3}),
                      .heads = 1,
                      .channels = sheet.pick<int64_t>("channels", {8, 12}),
                      .seq_len = 4,
                      .positions = 4,
                      .vocab = 11,
                      .padded_vocab = 16};
  const ParamLayout layout(gpt);
  Found found(ranks);
  run_threads(
      ranks, [&](Comm& comm) { train(sheet, layout, options, comm, found); }, kPatience);
  for (int r = 0; r < ranks; ++r) {
    sheet.bits(fmt::format("buckets/rank {}", r), found.numbers[static_cast<size_t>(r)]);
    sheet.text(fmt::format("early/rank {}", r), found.early[static_cast<size_t>(r)]);
  }
}

void cases(Sheet& sheet) {
  for (const int64_t n :
       {sheet.pick<int64_t>("few", {5, 64, 200}), sheet.pick<int64_t>("n", {999, 1024})}) {
    for (const int ranks : {2, sheet.pick("ranks", {3, 5}), 4})
      sheet.run(fmt::format("ring of {}, {} numbers", ranks, n),
                [&] { run_reduction(sheet, Reduction::Ring, ranks, n); });
    for (const int ranks : {2, 4, 8})
      sheet.run(fmt::format("halving on {}, {} numbers", ranks, n),
                [&] { run_reduction(sheet, Reduction::Halving, ranks, n); });
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

}  // namespace
}  // namespace ladder::lab

int main() { return ladder::lab::measure(ladder::lab::cases); }
