// When each stage does what, and how long it has nothing to do: the bubble.
//
// Each stage has a clock, which every action advances by its duration. An action begins when the
// action before it has ended. A receive also waits until its message was sent, and a send until
// there is room.
//
//   0  F0 F1 ......B0--- F2 B1--- F3 B2--- ...B3---      1f1b: each stage
//   1  ...F0 B0--- F1 B1--- F2 B2--- F3 B3--- ......      waits 3 of 15
//
// The durations may be given. This is the theory, and simulate() then equals theory_idle_share().
// Or they are measured, each action by the CPU clock of its thread. This gives the bubble of a
// machine with a core per stage, even on a machine with fewer.
//
// How long every stage is idle, if messages take no time. A micro-batch takes T_F forward, T_I for
// the gradient of its input and T_W for that of the weights:
//
//   gpipe, 1f1b   (p-1) (T_F + T_I + T_W)         filling and draining the pipeline, once each
//   interleaved   (p-1) (T_F + T_I + T_W) / v     a chunk is a v-th as long
//   zb-h1         (p-1) (T_F + T_I - T_W)         W fills gaps
//
// The last line holds if m >= p, and if T_W is at most T_F and at most T_I.
#pragma once

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "chapters/12_pipeline_parallel/pipeline.h"
#include "chapters/12_pipeline_parallel/proof/pipeline_check.h"
#include "kernels/check.h"

namespace ladder {

/// How long each action takes: [stage][index in its list], in any unit.
using Durations = std::vector<std::vector<double>>;

/// An action and when it happens. Time 0 is when the first stage begins.
struct Timed {
  Action action;
  double begin, end;
};

struct PipelineClock {
  std::vector<std::vector<Timed>> stages;  ///< [stage]: its list

  /// When the last stage ends.
  double end() const {
    double last = 0;
    for (const auto& list : stages)
      if (!list.empty()) last = std::max(last, list.back().end);
    return last;
  }
  /// The share of the time of all stages in which they wait.
  double idle_share() const {
    double busy = 0;
    for (const auto& list : stages)
      for (const Timed& t : list) busy += t.end - t.begin;
    const double all = static_cast<double>(stages.size()) * end();
    return all > 0 ? 1 - busy / all : 0;
  }
};

/// How long each action of a list takes. Messages take no time.
/// @param times of Forward, Backward, BackwardInput, BackwardWeight
inline std::vector<double> durations_of(const std::vector<Action>& list,
                                        const std::array<double, 4>& times) {
  std::vector<double> all;
  for (const Action& a : list) {
    const auto i = static_cast<size_t>(a.what);
    all.push_back(i < times.size() ? times[i] : 0);
  }
  return all;
}

/// Durations if every micro-batch takes the same times in each chunk, and messages take none.
inline Durations equal_durations(const Pipeline& pipeline, double T_F, double T_I, double T_W) {
  Durations all;
  for (const auto& list : pipeline.lists)
    all.push_back(durations_of(list, {T_F, T_I + T_W, T_I, T_W}));
  return all;
}

/// @throws CheckError if the stages wait for one another forever, or if there are not as many
/// durations as actions
inline PipelineClock simulate(const Pipeline& pipeline, const Durations& durations) {
  CHECK(durations.size() == pipeline.lists.size(), "{} stages", durations.size());
  for (int64_t s = 0; s < pipeline.stages; ++s)
    CHECK(durations[s].size() == pipeline.lists[s].size(), "stage {}: {} durations, {} actions", s,
          durations[s].size(), pipeline.lists[s].size());
  PipelineClock clock{.stages = std::vector<std::vector<Timed>>(pipeline.stages)};
  walk(pipeline, [&](const Turn& here, const std::optional<Turn>& other) {
    auto& list = clock.stages[here.stage];
    double begin = list.empty() ? 0 : list.back().end;
    if (other) begin = std::max(begin, clock.stages[other->stage][other->index].end);
    list.push_back({action_of(pipeline, here), begin, begin + durations[here.stage][here.index]});
  });
  return clock;
}

/// The share of the time that every stage is idle, from the times of one micro-batch on one stage.
/// Exact, with one exception: in zb-h1 with m < p and T_I the smallest time, stages wait a little
/// less.
///
/// A gap of zb-h1 cannot take more of W than its own length. So if T_F or T_I is shorter than T_W,
/// the shorter one counts instead of T_W. And m < p micro-batches fill only m - 1 gaps, not
/// p - 1.
inline double theory_idle_share(PipelineKind kind, int64_t p, int64_t v, int64_t m, double T_F,
                                double T_I, double T_W) {
  const auto others = static_cast<double>(p - 1);
  const double work = T_F + T_I + T_W;
  double idle = others * work;
  if (kind == PipelineKind::Interleaved) {
    idle /= static_cast<double>(v);
  } else if (kind == PipelineKind::ZbH1) {
    const auto gaps = static_cast<double>(std::min(p, m) - 1);
    idle = others * (T_F + T_I) - gaps * std::min({T_F, T_I, T_W});
  }
  return idle / (idle + static_cast<double>(m) * work);
}

/// F, B, I (BackwardInput), W (BackwardWeight); "" for messages.
inline std::string letter(Do what) {
  constexpr std::string_view kLetters = "FBIW";
  const auto i = static_cast<size_t>(what);
  return i < kLetters.size() ? std::string(1, kLetters[i]) : "";
}

/// A row for each stage: what it computes, such as "F3" for micro-batch 3, in small letters for
/// every second chunk. Dots show that it waits. A label is cut if there is no room for it.
/// @param columns per unit of time
inline std::string draw(const PipelineClock& clock, double columns = 3) {
  const auto column = [&](double time) { return std::lround(time * columns); };
  const size_t margin = fmt::format("{}", clock.stages.size() - 1).size();
  std::string picture;
  for (size_t s = 0; s < clock.stages.size(); ++s) {
    std::string row(column(clock.end()), '.');
    for (const auto& [action, begin, end] : clock.stages[s]) {
      const int64_t room = column(end) - column(begin);
      std::string label = letter(action.what);
      if (label.empty() || room == 0) continue;
      if (action.chunk % 2 == 1) label[0] = static_cast<char>(std::tolower(label[0]));
      label += fmt::format("{}", action.micro);
      if (std::ssize(label) < room) label.append(room - label.size() - 1, '-') += ' ';
      row.replace(column(begin), room, label, 0, room);
    }
    row.erase(row.find_last_not_of(' ') + 1);
    picture += fmt::format("{:{}}  {}\n", s, margin, row);
  }
  return picture;
}

/// What each stage computes: [["F", micro, chunk, begin, end], ...].
inline nlohmann::json to_json(const PipelineClock& clock) {
  nlohmann::json stages = nlohmann::json::array();
  for (const auto& list : clock.stages) {
    nlohmann::json row = nlohmann::json::array();
    for (const auto& [action, begin, end] : list)
      if (const std::string what = letter(action.what); !what.empty())
        row.push_back({what, action.micro, action.chunk, begin, end});
    stages.push_back(row);
  }
  return stages;
}

}  // namespace ladder
