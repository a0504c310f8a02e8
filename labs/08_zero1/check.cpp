// Two updates of a small model, as main.cpp of chapter 08 makes them, on gradients that are drawn.
#include "labs/check.h"

#include <chrono>
#include <exception>
#include <string>
#include <vector>

#include "chapters/02_adamw/optimizer.h"
#include "chapters/08_zero1/zero1.h"
#include "common/comm/run_ranks.h"
#include "common/model/init.h"
#include "common/run/backend.h"
#include "kernels/narrow.h"

namespace ladder::lab {
namespace {

struct Case {
  int ranks;
  GptConfig gpt;
  PrecisionOptions precision;
  DdpOptions ddp;
  uint64_t seed;
};

/// What a rank has found, and where: "step 1, section 0".
struct Row {
  std::string place;
  std::vector<float> numbers;
};
/// Of each rank.
struct Found {
  std::vector<std::vector<Row>> sums, weights;
  std::vector<int64_t> sent;
};

/// The elements of a 16-bit or 32-bit tensor.
std::vector<float> floats(const Tensor& tensor) {
  std::vector<float> all(static_cast<size_t>(tensor.size()));
  for (size_t i = 0; i < all.size(); ++i)
    all[i] = tensor.dtype == Dtype::F32
                 ? tensor.data<float>()[i]
                 : widen(kBf16, static_cast<const uint16_t*>(tensor.host())[i]);
  return all;
}

/// A row for each section of `flat`: of a shard its chunk.
void append(std::vector<Row>& rows, const std::string& when, const ParamLayout& layout,
            const Tensor& flat) {
  for (int64_t s = 0; s < layout.sections(); ++s)
    rows.push_back({fmt::format("{}, section {}", when, s), floats(layout.section_of(flat, s))});
}

void train(const Sheet& sheet, const Case& c, Comm& comm, Found& found) {
  RunOptions run;
  run.ranks = c.ranks;
  run.threads = 1;
  Arena arena;
  const Ctx ctx = make_ctx(run, arena, nullptr, {.comm = &comm});
  const auto rank = static_cast<size_t>(comm.rank());
  const ParamLayout params(c.gpt, c.ranks), shard = params.shard(comm.rank());
  const ShardedWeights weights(arena, params, shard, c.precision);
  const Tensor grads = arena.zeros(Mem::Grad, "grads", Dtype::F32, {params.size()});
  CommStream stream = open_comm_stream(arena, ctx, comm, run, c.ddp, params.largest_section());
  Zero1 zero1(stream, params, c.ddp);
  Optimizer optimizer(arena, shard, {}, {});

  init_params(ctx, weights.master, shard, c.gpt, c.seed);
  weights.refresh(ctx, shard);
  all_gather(ctx, stream, params, weights.compute);
  append(found.weights[rank], "at the start", params, weights.compute);
  for (uint64_t step = 0; step < 2; ++step) {
    stream.begin_step();
    const std::vector<float> drawn =
        sheet.normals("gradients", params.size(), 100 * step + rank + 1);
    std::ranges::copy(drawn, grads.data<float>());
    for (int64_t s = params.sections(); s-- > 0;) zero1.ready(grads, s);
    zero1.finish(ctx, grads);
    append(found.sums[rank], fmt::format("step {}", step + 1), shard, grads);
    optimizer.step(ctx, weights.master, grads, 1e-2f);
    weights.refresh(ctx, shard);
    all_gather(ctx, stream, params, weights.compute);
    append(found.weights[rank], fmt::format("after step {}", step + 1), params, weights.compute);
  }
  found.sent[rank] = stream.sent();
}

void run_case(Sheet& sheet, const Case& c) {
  Found found{.sums = std::vector<std::vector<Row>>(c.ranks),
              .weights = std::vector<std::vector<Row>>(c.ranks),
              .sent = std::vector<int64_t>(c.ranks)};
  std::exception_ptr thrown;  // what has been found before says where
  try {
    run_threads(
        c.ranks, [&](Comm& comm) { train(sheet, c, comm, found); }, std::chrono::seconds(5));
  } catch (...) {
    thrown = std::current_exception();
  }
  for (int r = 0; r < c.ranks; ++r) {
    for (const auto& [place, numbers] : found.sums[r])
      sheet.bits(fmt::format("sums/rank {}: {}", r, place), numbers);
    for (const auto& [place, numbers] : found.weights[r])
      sheet.bits(fmt::format("weights/rank {}: {}", r, place), numbers);
  }
  if (thrown) std::rethrow_exception(thrown);
  int64_t sent = 0;
  for (const int64_t bytes : found.sent) sent += bytes;
  const ParamLayout params(c.gpt, c.ranks);
  const int64_t element = size_of(c.precision.dtype());
  sheet.without_idea("sent", (c.ranks - 1) * params.size() * (8 + element));
  sheet.count("sent", sent);
}

/// How n elements are cut: no section of a model, which is padded to equal chunks.
void run_chunks(Sheet& sheet, int ranks, int64_t n) {
  std::vector<std::string> found(static_cast<size_t>(ranks));
  const auto body = [&](Comm& comm) {
    RunOptions run;
    run.threads = 1;
    Arena arena;
    const Ctx ctx = make_ctx(run, arena, nullptr, {.comm = &comm});
    const Tensor section = arena.zeros(Mem::Grad, "section", Dtype::F32, {n});
    const Reducer reducer(comm, ctx, Reduction::Tree, arena, Dtype::F32, n);
    const Chunks chunks = chunks_of(section, reducer);
    for (int i = 0; i < ranks; ++i)
      found[static_cast<size_t>(comm.rank())] +=
          fmt::format("{}{} to {}", i > 0 ? ", " : "", chunks[i].begin, chunks[i].end);
  };
  run_threads(ranks, body, std::chrono::seconds(5));
  for (int r = 0; r < ranks; ++r) sheet.text(fmt::format("chunks/cut: rank {}", r), found[r]);
}

/// Right for each precision, and where ranks send different amounts, or not at all.
void run_formula(Sheet& sheet, std::vector<Case> all) {
  all.push_back(all.front());
  all.back().ddp.reduction = Reduction::Tree;
  for (const Case& c : all) {
    const auto bytes = zero1_traffic(ParamLayout(c.gpt, c.ranks), c.ddp, c.precision);
    sheet.text(fmt::format("formula/{}: {} ranks",
                           c.ddp.is_even() ? c.precision.name : "an uneven reduction", c.ranks),
               bytes ? fmt::format("{}", *bytes) : "none");
  }
}

/// Small models that have all of it: blocks, padding, odd sizes.
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
                     .padded_vocab = 32},
             .precision = {},
             .ddp = {},
             .seed = sheet.seed()};
      c.precision.name = precision;
      c.ddp.mode = precision == std::string("fp32") ? DdpMode::Bucketed : DdpMode::Overlapped;
      c.ddp.bucket_mb = 0;
      const std::string name =
          fmt::format("{} ranks, {}, {}", ranks, precision, to_string(c.ddp.mode));
      sheet.run(name, [&] { run_case(sheet, c); });
      all.push_back(c);
    }
  for (const int ranks : {2, 3}) {
    const int64_t n = sheet.pick<int64_t>("elements", {200, 330, 1000});
    sheet.run(fmt::format("{} elements on {} ranks", n, ranks),
              [&] { run_chunks(sheet, ranks, n); });
  }
  sheet.run("by formula", [&] { run_formula(sheet, all); });
}

}  // namespace
}  // namespace ladder::lab

int main() { return ladder::lab::measure(ladder::lab::cases); }
