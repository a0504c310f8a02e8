// Two updates of a small model, as main.cpp of chapter 08 makes them, on gradients that are drawn.
#include "labs/check.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <string>
#include <vector>

#include "chapters/02_adamw/optimizer.h"
#include "chapters/08_zero1/zero1.h"
#include "common/model/init.h"
#include "common/model/tied_head.h"
#include "labs/ranks.h"

namespace ladder::lab {
namespace {

constexpr std::chrono::milliseconds kSlow{20};

struct Case {
  int ranks;
  GptConfig gpt;
  PrecisionOptions precision;
  DdpOptions ddp;
  uint64_t seed;
};

/// What one rank has found.
struct Found {
  std::vector<Row> sums, weights;
  std::vector<std::vector<float>> sends;  ///< [step]: after which sections something was sent
  int64_t sent = 0;
};

/// Adds a row for each section of `flat`; of a shard, its chunk of the section.
void append(std::vector<Row>& rows, const std::string& when, const ParamLayout& layout,
            const Tensor& flat) {
  for (int64_t s = 0; s < layout.sections(); ++s)
    rows.push_back({fmt::format("{}, section {}", when, s), numbers(layout.section_of(flat, s))});
}

void train(const Sheet& sheet, const Case& c, Comm& comm, Found& found) {
  OneRank rank(comm);
  auto& [run, arena, ctx] = rank;
  const ParamLayout params(c.gpt, c.ranks), shard = params.shard(comm.rank());
  const ParamLayout layout = params.grads();
  const ShardedWeights weights(arena, params, shard, c.precision);
  const Tensor grads = arena.zeros(Mem::Grad, "grads", Dtype::F32, {layout.size()}),
               drawn = arena.zeros(Mem::Workspace, "drawn", Dtype::F32, {layout.size()});
  CommStream stream = open_comm_stream(arena, ctx, comm, run, c.ddp, layout.largest_section());
  Zero1 zero1(stream, params, c.ddp);
  Optimizer optimizer(arena, shard, {}, {});

  init_params(ctx, weights.master, shard, c.seed);
  weights.refresh(ctx, shard);
  all_gather(ctx, stream, params, weights.compute);
  append(found.weights, "at the start", params, weights.compute);
  const auto sent = [&] { return stream.group().statistics().wire_bytes(); };
  int64_t before = 0;
  for (uint64_t step = 0; step < 2; ++step) {
    before = sent();
    sheet.draw(drawn, "gradients", 100 * step + static_cast<uint64_t>(comm.rank()) + 1);
    found.sends.emplace_back();
    for (int64_t s = params.sections(); s-- > 0;) {
      const int64_t before_section = sent();
      const Tensor section = layout.section_of(drawn, s);
      std::copy_n(section.data<float>(), section.size(), layout.section_of(grads, s).data<float>());
      const bool slow = step == 1 && s == 0;  // then wait() alone waits
      if (slow) static_cast<void>(delay(stream, kSlow));
      zero1.section_done(grads, s);
      if (slow) break;
      found.sends.back().push_back(sent_so_far(stream) > before_section ? 1 : 0);
    }
    zero1.wait(ctx, grads);
    append(found.sums, fmt::format("step {}", step + 1), shard.grads(), grads);
    optimizer.step(ctx, weights.master, join_tied_head(ctx, params, grads), 1e-2f);
    weights.refresh(ctx, shard);
    if (step == 1) static_cast<void>(delay(stream, kSlow));
    all_gather(ctx, stream, params, weights.compute);
    append(found.weights, fmt::format("after step {}", step + 1), params, weights.compute);
  }
  found.sent = sent_so_far(stream) - before;
}

std::vector<Found> run_case(Sheet& sheet, const Case& c) {
  std::vector<Found> found(static_cast<size_t>(c.ranks));
  std::exception_ptr thrown;  // what has been found before says where
  try {
    run_threads(
        c.ranks,
        [&](Comm& comm) { train(sheet, c, comm, found[static_cast<size_t>(comm.rank())]); },
        std::chrono::seconds(5));
  } catch (...) {
    thrown = std::current_exception();
  }
  for (size_t r = 0; r < found.size(); ++r) {
    write(sheet, "sums", r, found[r].sums);
    write(sheet, "weights", r, found[r].weights);
  }
  if (thrown) std::rethrow_exception(thrown);
  const ParamLayout params(c.gpt, c.ranks);
  const int64_t element = size_of(c.precision.dtype());
  sheet.without_idea("sent", (c.ranks - 1) * (8 * params.grads().size() + element * params.size()));
  sheet.count("sent", sum_of(found, &Found::sent));
  return found;
}

/// How n elements are cut. n is the size of no section of a model: those are padded to equal
/// chunks.
void run_chunks(Sheet& sheet, int ranks, int64_t n) {
  const auto found = on_ranks<std::string>(ranks, [&](Comm& comm, std::string& cut) {
    OneRank rank(comm);
    const Tensor section = rank.arena.zeros(Mem::Grad, "section", Dtype::F32, {n});
    const Collectives collectives(comm, rank.ctx, Reduction::Tree, rank.arena, Dtype::F32, n);
    const Chunks chunks = chunks_of(section, collectives);
    for (int i = 0; i < ranks; ++i)
      cut += fmt::format("{}{} to {}", i > 0 ? ", " : "", chunks[i].begin, chunks[i].end);
  });
  for (size_t r = 0; r < found.size(); ++r)
    sheet.text(fmt::format("chunks/cut: rank {}", r), found[r]);
}

/// The formula for each precision, and for a reduction in which ranks send different amounts. It
/// must be right in all rows.
void run_formula(Sheet& sheet, std::vector<Case> all) {
  all.push_back(all.front());
  all.back().ddp.reduction = Reduction::Tree;
  for (const Case& c : all) {
    const auto bytes = zero1_traffic(ParamLayout(c.gpt, c.ranks), c.ddp, c.precision);
    sheet.text(
        fmt::format("formula/{}: {} ranks",
                    c.ddp.sends_equally() ? c.precision.name : "an uneven reduction", c.ranks),
        bytes ? fmt::format("{}", *bytes) : "none");
  }
}

}  // namespace

/// Small models with blocks, padding and odd sizes.
void cases(Sheet& sheet) {
  std::vector<Case> all;
  for (const char* precision : {"fp32", "bf16"})
    for (const int ranks : {2, sheet.pick("ranks", {4, 8})}) {
      const int64_t channels = sheet.pick("channels", {8, 12, 16});
      Case c{.ranks = ranks,
             .gpt = {.name = "lab",
                     .layers = sheet.pick<int64_t>("layers", {1, 2}),
                     .heads = 2,
                     .channels = channels,
                     .seq_len = 5,
                     .positions = sheet.pick<int64_t>("positions", {5, 7}),
                     .vocab = sheet.pick<int64_t>("vocab", {11, 20}),
                     .padded_vocab = 32,
                     .tied_head = (ranks > 2) == (precision == std::string("fp32"))},
             .precision = {},
             .ddp = {},
             .seed = sheet.seed()};
      c.precision.name = precision;
      if (c.precision.narrow() && ranks > 2) c.precision.master_bits = 16;
      c.ddp.mode = precision == std::string("fp32") ? DdpMode::Bucketed : DdpMode::Overlapped;
      c.ddp.bucket_mb = 0;
      const std::string name =
          fmt::format("{} ranks, {}, {}", ranks, precision, to_string(c.ddp.mode));
      std::vector<Found> found;
      sheet.run(name, [&] { found = run_case(sheet, c); });
      all.push_back(c);
      if (c.ddp.mode == DdpMode::Bucketed) continue;
      // A case of its own: who sends all at the end has the right sums and bytes.
      sheet.run(name + ", beside backward", [&] {
        for (size_t r = 0; r < found.size(); ++r)
          for (size_t step = 0; step < found[r].sends.size(); ++step)
            sheet.bits(fmt::format("sums/step {}: whether rank {} sends, from the last section on",
                                   step + 1, r),
                       found[r].sends[step]);
      });
    }
  for (const int ranks : {2, 3}) {
    const int64_t n = sheet.pick<int64_t>("elements", {200, 330, 1000});
    sheet.run(fmt::format("{} elements on {} ranks", n, ranks),
              [&] { run_chunks(sheet, ranks, n); });
  }
  sheet.run("by formula", [&] { run_formula(sheet, all); });
}

}  // namespace ladder::lab
