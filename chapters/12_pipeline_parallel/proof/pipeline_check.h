// Checks that a pipeline schedule is right, before it runs.
//
// If two stages wait for each other, the run hangs. If a gradient is added in another order, a bit
// is wrong and nobody sees it. A schedule is data, so both can be refused before the run:
//
//   each stage alone   every micro-batch goes once through every chunk:
//                        receive, F, send ... receive, B, send        or I, send ... W
//                      gradients come in the order of micro-batches, in which the tree of chapter
//                      04 sums them; no more micro-batches are in flight than the schedule promises
//   all stages         every message meets the receive that wants it; no stage waits forever
//
// Activations go to the next stage and gradients to the one before, each through a channel of its
// own. A channel keeps the order of its messages. Send k waits until message k - kMailbox was
// received. So whether a stage can go on depends on what the others have done, not on when they did
// it. One walk through the lists, in any order that this allows, stands for all orders.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "chapters/12_pipeline_parallel/pipeline.h"
#include "kernels/check.h"

namespace ladder {

/// One action of a pipeline: action `index` in the list of `stage`.
struct Turn {
  int64_t stage, index;
};

inline const Action& action_of(const Pipeline& pipeline, const Turn& turn) {
  return pipeline.lists[turn.stage][turn.index];
}

/// "stage 1, action 5 (Forward of micro-batch 2, chunk 0)"
inline std::string to_string(const Pipeline& pipeline, const Turn& turn) {
  return fmt::format("stage {}, action {} ({})", turn.stage, turn.index,
                     to_string(action_of(pipeline, turn)));
}

/// @throws CheckError
template <class... Args>
[[noreturn]] void refuse(const Pipeline& pipeline, fmt::format_string<Args...> text,
                         Args&&... args) {
  throw CheckError(fmt::format("pipeline {}: {}", to_string(pipeline.kind),
                               fmt::format(text, std::forward<Args>(args)...)));
}

/// The messages from one stage to one of its neighbors.
struct Channel {
  std::vector<Turn> sent, received;

  bool full() const { return std::ssize(sent) == std::ssize(received) + kMailbox; }
  bool empty() const { return sent.size() == received.size(); }
};

/// Calls visit(turn, other) for all actions, each after those that it waits for. `other` is the
/// action of another stage that it had to wait for, if there is one: for a receive the send, for a
/// send the receive that made room.
/// @throws CheckError if a receive gets another message than its own, or if stages wait forever
template <class Visit>
void walk(const Pipeline& pipeline, Visit&& visit) {
  const int64_t p = pipeline.stages;
  std::vector<Channel> activations(p), gradients(p);  // [sender]
  std::vector<int64_t> done(p);

  // Does the next action of stage s, unless that action must wait.
  const auto advance = [&](int64_t s) {
    const Turn here{s, done[s]};
    const Action& a = action_of(pipeline, here);
    std::optional<Turn> other;
    if (is_send(a.what)) {
      Channel& channel = (a.what == Do::SendActivation ? activations : gradients)[s];
      if (channel.full()) return false;
      const auto k = std::ssize(channel.sent);
      if (k >= kMailbox) other = channel.received[k - kMailbox];
      channel.sent.push_back(here);
    } else if (is_receive(a.what)) {
      const bool forward = a.what == Do::RecvActivation;
      Channel& channel = (forward ? activations : gradients)[peer(s, a.what, p)];
      if (channel.empty()) return false;
      other = channel.sent[channel.received.size()];
      const Action& message = action_of(pipeline, *other);
      const int64_t part =
          pipeline.model_chunk(s, a.chunk) + (forward ? -1 : 1);  // it waits for this
      if (message.micro != a.micro || pipeline.model_chunk(other->stage, message.chunk) != part)
        refuse(pipeline, "{} gets the message of {}", to_string(pipeline, here),
               to_string(pipeline, *other));
      channel.received.push_back(here);
    }
    visit(here, other);
    ++done[s];
    return true;
  };
  const auto left = [&](int64_t s) { return done[s] < std::ssize(pipeline.lists[s]); };
  for (bool moved = true; std::exchange(moved, false);)
    for (int64_t s = 0; s < p; ++s)
      while (left(s) && advance(s)) moved = true;

  std::vector<std::string> waiting;
  for (int64_t s = 0; s < p; ++s)
    if (left(s))
      waiting.push_back(fmt::format("{} waits for stage {}", to_string(pipeline, {s, done[s]}),
                                    peer(s, action_of(pipeline, {s, done[s]}).what, p)));
  if (!waiting.empty())
    refuse(pipeline, "no stage can go on: {}", fmt::format("{}", fmt::join(waiting, "; ")));
}

/// The most pairs of micro-batch and chunk on a stage that are between their forward and the end of
/// their backward (BackwardWeight included). The stage keeps activations for each of them.
inline int64_t most_in_flight(const std::vector<Action>& list) {
  int64_t now = 0, most = 0;
  for (const Action& a : list) {
    now += a.what == Do::Forward;
    most = std::max(most, now);
    now -= ends_flight(a.what);
  }
  return most;
}

/// The same number by formula, exactly. gpipe: m. The others: the forwards ahead and one in
/// progress. Stage s of zb-h1: s more, which wait for W.
/// @param p,v,m stages, chunks of a stage, micro-batches
inline int64_t promised_in_flight(PipelineKind kind, int64_t p, int64_t v, int64_t m,
                                  int64_t stage) {
  switch (kind) {
    case PipelineKind::GPipe: return m;
    case PipelineKind::OneFOneB: return std::min(p - stage, m);
    case PipelineKind::Interleaved: return std::min(2 * (p - stage - 1) + (v - 1) * p + 1, v * m);
    case PipelineKind::ZbH1: break;
  }
  return std::min(p, m);
}

/// What a stage has done in one of its chunks so far.
struct ChunkProgress {
  std::vector<bool> forward;  ///< [micro]
  int64_t inputs = 0;         ///< gradients of inputs: of micro-batches 0 .. inputs - 1
  int64_t weights = 0;        ///< gradients of weights, in the same way
};

/// @throws CheckError unless stage s may compute `turn` now. Records that it does.
inline void check_compute(const Pipeline& pipeline, const Turn& turn, ChunkProgress& done) {
  const auto& [what, micro, chunk] = action_of(pipeline, turn);
  if (what == Do::Forward) {
    if (done.forward[micro]) refuse(pipeline, "{} is there twice", to_string(pipeline, turn));
    done.forward[micro] = true;
  }
  const auto in_order = [&](int64_t& next) {
    if (micro != next)
      refuse(pipeline, "{}: here must be micro-batch {}", to_string(pipeline, turn), next);
    ++next;
  };
  if (wants_input(what)) {
    in_order(done.inputs);
    if (!done.forward[micro])
      refuse(pipeline, "{} has no Forward before it", to_string(pipeline, turn));
  }
  if (wants_weight(what)) {
    in_order(done.weights);
    if (micro >= done.inputs)
      refuse(pipeline, "{} has no BackwardInput before it", to_string(pipeline, turn));
  }
}

/// @throws CheckError unless stage s computes everything that it must, in a possible order
inline void check_all_computed(const Pipeline& pipeline, int64_t s) {
  const int64_t m = pipeline.micros, v = pipeline.chunks;
  std::vector<ChunkProgress> done(v, {.forward = std::vector<bool>(m)});
  for (int64_t i = 0; i < std::ssize(pipeline.lists[s]); ++i) {
    const auto [what, micro, chunk] = action_of(pipeline, {s, i});
    if (micro < 0 || micro >= m || chunk < 0 || chunk >= v)
      refuse(pipeline, "{}: there are {} micro-batches and {} chunks", to_string(pipeline, {s, i}),
             m, v);
    check_compute(pipeline, {s, i}, done[chunk]);
  }
  // Weight gradients come last, and none is left out. So their number tells whether all is done.
  for (int64_t c = 0; c < v; ++c)
    if (done[c].weights != m)
      refuse(pipeline, "stage {} ends with {} of {} micro-batches through chunk {}", s,
             done[c].weights, m, c);
}

/// @throws CheckError unless the messages of stage s are placed around its actions as
/// with_messages() does
inline void check_messages(const Pipeline& pipeline, int64_t s) {
  const std::vector<Action>& list = pipeline.lists[s];
  std::vector<Action> compute;
  std::ranges::copy_if(list, std::back_inserter(compute),
                       [](const Action& a) { return !is_send(a.what) && !is_receive(a.what); });
  const std::vector<Action> wanted = with_messages(pipeline, s, compute);
  const auto [found, must] = std::ranges::mismatch(list, wanted);
  const int64_t i = found - list.begin();
  if (found != list.end() && must != wanted.end())
    refuse(pipeline, "{}: here must be {}", to_string(pipeline, {s, i}), to_string(*must));
  if (found != list.end()) refuse(pipeline, "{} is too many", to_string(pipeline, {s, i}));
  if (must != wanted.end()) refuse(pipeline, "stage {} ends without {}", s, to_string(*must));
}

/// @throws CheckError unless stage s keeps at most what was promised
inline void check_in_flight(const Pipeline& pipeline, int64_t s) {
  const auto& [kind, p, v, m, lists] = pipeline;
  const int64_t most = most_in_flight(pipeline.lists[s]);
  const int64_t promised = promised_in_flight(kind, p, v, m, s);
  if (most > promised)
    refuse(pipeline, "stage {} has {} micro-batches in flight, and {} are promised", s, most,
           promised);
}

/// @throws CheckError that names the stage, the action and what is wrong with it
inline void check_pipeline(const Pipeline& pipeline) {
  CHECK(std::ssize(pipeline.lists) == pipeline.stages, "{} lists for {} stages",
        pipeline.lists.size(), pipeline.stages);
  for (int64_t s = 0; s < pipeline.stages; ++s) {
    check_all_computed(pipeline, s);
    check_messages(pipeline, s);
    check_in_flight(pipeline, s);
  }
  walk(pipeline, [](const Turn&, const std::optional<Turn>&) {});
}

}  // namespace ladder
