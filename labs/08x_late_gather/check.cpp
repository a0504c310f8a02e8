// Sections whose chunks ranks have updated: what is gathered when, and who waits for what.
#include "labs/check.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <limits>
#include <semaphore>
#include <string>
#include <vector>

#include "labs/08x_late_gather/late_gather.h"
#include "labs/ranks.h"

namespace ladder::lab {
namespace {

constexpr std::chrono::seconds kHeld{2};       // then a use that waits for what is held goes on
constexpr std::chrono::milliseconds kSlow{1};  // what a section takes in the second step
constexpr int64_t kSteps = 2;

struct Case {
  int ranks;
  ParamLayout params;
  int64_t held;  ///< behind the gather of this section nothing travels until it has been used
};

/// What one rank has found.
struct Found {
  std::vector<float> weights;     ///< sections as they were when they were used
  std::string early;              ///< bytes sent after each update, up to the one that is held
  std::atomic<bool> late{false};  ///< a use has waited for what was held
};

/// The new chunk of rank `owner`.
std::vector<float> chunk_of(const Sheet& sheet, int64_t step, int64_t s, int64_t owner,
                            int64_t size) {
  return sheet.normals("weights", size, static_cast<uint64_t>(10000 * step + 100 * s + owner));
}

/// "512" after the first update of the first step, then ", 768"; " | 512" begins another step.
std::string sent_text(int64_t step, int64_t s, int64_t bytes) {
  const char* before = s > 0 ? ", " : step > 0 ? " | " : "";
  return fmt::format("{}{}", before, bytes);
}

void train(const Sheet& sheet, const Case& c, Comm& comm, Found& found) {
  OneRank rank(comm);
  auto& [run, arena, ctx] = rank;
  DdpOptions beside;
  beside.mode = DdpMode::Overlapped;
  std::binary_semaphore used(0);  // the section behind which the first step is held
  CommStream stream = open_comm_stream(arena, ctx, comm, run, beside, c.params.largest_section());
  const Tensor params = arena.alloc(Mem::Param, "params", Dtype::F32, {c.params.size()});
  LateGather gather(stream, c.params);
  for (int64_t step = 0; step < kSteps; ++step) {
    const int64_t before = stream.group().statistics().wire_bytes();
    std::ranges::fill_n(params.data<float>(), params.size(),
                        std::numeric_limits<float>::quiet_NaN());
    Pending hold;
    for (int64_t s = 0; s < c.params.sections(); ++s) {
      const Tensor section = c.params.section_of(params, s);
      const Tensor own = Chunks{section.size(), c.ranks, kAlign}.of(section, comm.rank());
      std::ranges::copy(chunk_of(sheet, step, s, comm.rank(), own.size()), own.data<float>());
      if (step == 1) static_cast<void>(delay(stream, kSlow));
      gather.updated(params, s);
      if (s <= c.held) found.early += sent_text(step, s, sent_so_far(stream) - before);
      if (s == c.held && step == 0)
        hold = stream.run([&](const Ctx&, Collectives&) {
          if (!used.try_acquire_for(kHeld)) found.late = true;
        });
    }
    for (int64_t s = 0; s < c.params.sections(); ++s) {
      gather.before_use(s);
      if (s == c.held && step == 0) used.release();
      const Tensor section = c.params.section_of(params, s);
      found.weights.insert(found.weights.end(), section.data<float>(),
                           section.data<float>() + section.size());
      gather.before_use(s);
    }
    hold.wait();
    drain(stream);  // what nobody has waited for
  }
}

void want(Sheet& sheet, const Case& c) {
  std::vector<float> weights;
  std::string early;
  for (int64_t step = 0; step < kSteps; ++step) {
    int64_t gathered = 0;
    for (int64_t s = 0; s < c.params.sections(); ++s) {
      const int64_t size = c.params.section(s).size();
      for (int64_t owner = 0; owner < c.ranks; ++owner) {
        const auto chunk = chunk_of(sheet, step, s, owner, size / c.ranks);
        weights.insert(weights.end(), chunk.begin(), chunk.end());
      }
      gathered += size;
      if (s <= c.held) early += sent_text(step, s, 4 * gathered / c.ranks * (c.ranks - 1));
    }
  }
  for (int r = 0; r < c.ranks; ++r) {
    sheet.bits(fmt::format("weights/rank {}", r), weights);
    sheet.text(fmt::format("early/rank {}", r), early);
    sheet.text(fmt::format("waits/rank {}", r), "for its own section");
  }
}

void run_case(Sheet& sheet, const Case& c) {
  sheet.wanted([&] { want(sheet, c); });
  const auto found =
      on_ranks<Found>(c.ranks, [&](Comm& comm, Found& mine) { train(sheet, c, comm, mine); });
  for (size_t r = 0; r < found.size(); ++r) {
    sheet.bits(fmt::format("weights/rank {}", r), found[r].weights);
    sheet.text(fmt::format("early/rank {}", r), found[r].early);
    sheet.text(fmt::format("waits/rank {}", r),
               found[r].late ? "for a later section" : "for its own section");
  }
}

}  // namespace

void cases(Sheet& sheet) {
  GptConfig gpt = small_gpt();
  gpt.layers = sheet.pick<int64_t>("layers", {2, 3});
  gpt.channels = sheet.pick<int64_t>("channels", {8, 12});
  for (const int ranks : {2, 4})
    for (const int64_t held : {int64_t{0}, gpt.layers})
      sheet.run(
          fmt::format("{} ranks, {} sections, held behind section {}", ranks, gpt.layers + 2, held),
          [&] {
            run_case(sheet, {.ranks = ranks, .params = ParamLayout(gpt, ranks), .held = held});
          });
}

}  // namespace ladder::lab
