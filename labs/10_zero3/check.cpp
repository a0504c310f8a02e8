// Sections of a small model are used as a step of chapter 10 uses them; nothing is computed.
#include "labs/check.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "chapters/10_zero3/zero3.h"
#include "common/model/init.h"
#include "labs/ranks.h"

namespace ladder::lab {
namespace {

constexpr std::chrono::milliseconds kLate{1};

/// When the weights of a section are looked at. A gather ahead may overwrite them.
enum class Look : uint8_t { AtOnce, WhenTheNextIsThere };

struct Case {
  int ranks;
  GptConfig gpt;
  Zero3Options zero3;
  DdpOptions ddp;
  std::string recompute;

  std::string name() const {
    return fmt::format("{} ranks, --prefetch {} --reshard-after-forward {} --recompute {}{}", ranks,
                       zero3.prefetch, zero3.reshard, recompute,
                       gpt.tied_head ? " --tied-head" : "");
  }
  std::vector<int64_t> used() const {
    return sections_used(gpt.layers, Recompute(recompute, gpt.layers));
  }
};

/// What one rank has found.
struct Found {
  std::vector<Row> weights;        ///< of a section when it was used
  std::vector<std::string> ahead;  ///< [step]: bytes sent after each use, in order
  int64_t kept = 0, sent = 0;
};

/// One tensor of section s.
Tensor some_of(const GptTensors& model, int64_t s) {
  const std::ptrdiff_t layers = std::ssize(model.blocks);
  if (s == 0) return model.embed.wte;
  return s > layers ? model.head_w : model.blocks[static_cast<size_t>(s) - 1].mlp.proj_w;
}

/// Where weights are looked at at once, ranks with odd numbers come late to each use. So no gather
/// of the other ranks ends early by chance: a use that does not wait finds the old weights.
void take_steps(const Sheet& sheet, const Case& c, Look look, Comm& comm, Found& found) {
  OneRank rank(comm);
  auto& [run, arena, ctx] = rank;
  const ParamLayout params(c.gpt, c.ranks), shard = params.shard(comm.rank());
  const Shard own{arena.zeros(Mem::Param, "own", Dtype::F32, {shard.size()})};
  CommStream stream = open_comm_stream(arena, ctx, comm, run, c.ddp, params.largest_section());
  const int64_t before = arena.current()[Mem::Workspace];
  GatheredParams gathered(arena, stream, params, shard, own, c.zero3);
  found.kept = arena.current()[Mem::Workspace] - before;

  const std::vector<int64_t> used = c.used();
  for (uint64_t step = 0; step < 2; ++step) {
    init_params(ctx, own, shard, sheet.seed() + step);
    const int64_t sent_before = stream.group().statistics().wire_bytes();
    std::string& ahead = found.ahead.emplace_back();
    for (size_t i = 0; i < used.size(); ++i) {
      if (look == Look::AtOnce && comm.rank() % 2 == 1) std::this_thread::sleep_for(kLate);
      gathered.unshard(ctx, used[i], i + 1 < used.size() ? used[i + 1] : 0);
      if (look == Look::WhenTheNextIsThere) ahead += fmt::format(" {}", sent_so_far(stream));
      const Tensor some = some_of(gathered.view(), used[i]);
      CHECK(some.ptr, "use {}: the view has no weights of section {}", i, used[i]);
      found.weights.push_back(
          {fmt::format("step {}, use {}, section {}", step + 1, i, used[i]), numbers(some)});
    }
    gathered.reshard();
    found.sent = stream.group().statistics().wire_bytes() - sent_before;
  }
}

std::vector<Found> run_ranks_of(Sheet& sheet, const Case& c, Look look) {
  auto found = on_ranks<Found>(
      c.ranks, [&](Comm& comm, Found& mine) { take_steps(sheet, c, look, comm, mine); });
  const char* when = look == Look::AtOnce ? "" : ", when the next is there";
  for (size_t r = 0; r < found.size(); ++r)
    for (const Row& row : found[r].weights)
      sheet.bits(fmt::format("weights/rank {}{}: {}", r, when, row.place), row.numbers);
  return found;
}

/// @return what was found when the next section was there
std::vector<Found> run_case(Sheet& sheet, const Case& c) {
  const std::vector<Found> found = run_ranks_of(sheet, c, Look::AtOnce);
  const ParamLayout params(c.gpt, c.ranks);
  // Without the idea there is a buffer for each section, and a gather for each use.
  int64_t each_use = 0;
  for (const int64_t s : c.used()) each_use += params.section(params.home_of(s)).size();
  sheet.without_idea("kept", 4 * c.ranks * params.size());
  sheet.count("kept", sum_of(found, &Found::kept));
  sheet.without_idea("sent", 4 * (c.ranks - 1) * each_use);
  sheet.count("sent", sum_of(found, &Found::sent));
  return run_ranks_of(sheet, c, Look::WhenTheNextIsThere);
}

void write_ahead(Sheet& sheet, const std::vector<Found>& found) {
  for (size_t r = 0; r < found.size(); ++r)
    for (size_t step = 0; step < found[r].ahead.size(); ++step)
      sheet.text(fmt::format("ahead/rank {}: step {}", r, step + 1), found[r].ahead[step]);
}

std::string bytes_of(const Case& c, int64_t GA) {
  PrecisionOptions precision;
  precision.name = GA == 1 ? "bf16" : "fp32";
  const auto bytes = zero3_traffic(ParamLayout(c.gpt, c.ranks), c.ddp, precision,
                                   Recompute(c.recompute, c.gpt.layers), c.zero3, GA);
  return bytes ? fmt::format("{}", *bytes) : "none";
}

/// The formula for one micro-step, for several, and where ranks send different amounts. Each gets
/// points only if it is right in all cases.
void run_formula(Sheet& sheet, const std::vector<Case>& all) {
  const auto several = sheet.pick<int64_t>("micro-steps", {2, 3, 4});
  for (const Case& c : all) {
    sheet.text("formula/one micro-step: " + c.name(), bytes_of(c, 1));
    sheet.text(fmt::format("formula/{} micro-steps: {}", several, c.name()), bytes_of(c, several));
  }
  Case uneven = all.front();
  uneven.ddp.reduction = Reduction::Tree;
  sheet.text("formula/an uneven reduction", bytes_of(uneven, 1));
}

}  // namespace

void cases(Sheet& sheet) {
  std::vector<Case> all;
  for (const int ranks : {2, sheet.pick("ranks", {4, 8})})
    for (const auto& [prefetch, reshard, recompute, tied] : {std::tuple{1, 1, "none", false},
                                                             {0, 1, "full", false},
                                                             {1, 1, "full", false},
                                                             {1, 1, "every:2", false},
                                                             {1, 0, "none", false},
                                                             {1, 1, "none", true}}) {
      Case c{.ranks = ranks, .gpt = small_gpt(), .zero3 = {}, .ddp = {}, .recompute = recompute};
      c.gpt.layers = sheet.pick<int64_t>("layers", {4, 5});
      c.gpt.positions = sheet.pick<int64_t>("positions", {40, 70});
      c.gpt.tied_head = tied;
      c.zero3.prefetch = prefetch;
      c.zero3.reshard = reshard;
      std::vector<Found> found;
      sheet.run(c.name(), [&] { found = run_case(sheet, c); });
      sheet.run(c.name() + ", ahead", [&] { write_ahead(sheet, found); });
      all.push_back(c);
    }
  sheet.run("by formula", [&] { run_formula(sheet, all); });
}

}  // namespace ladder::lab
