// Pipeline schedules as plain data: what each stage does, and in which order.
//
// The layers are cut into p stages and the batch into m micro-batches. Micro-batches follow one
// another through the stages, forward (F) and back (B), so that all stages have work at the same
// time. A schedule says in which order a stage takes them. Here are two stages and four
// micro-batches. B is twice as long as F, and a stage waits where there are dots:
//
//   gpipe         F0- F1- F2- F3- ............B0----- B1----- B2----- B3-----
//                 ....F0- F1- F2- F3- B0----- B1----- B2----- B3----- ........
//
//   1f1b          F0- F1- ........B0----- F2- B1----- F3- B2----- ....B3-----
//                 ....F0- B0----- F1- B1----- F2- B2----- F3- B3----- ........
//
//   interleaved   F0F1f0f1F2..b0- F3b1- f2B0- f3B1- ..b2- ..b3- B2- B3-
//                 ..F0F1f0b0- f1b1- F2B0- F3B1- f2b2- f3b3- B2- B3- ....
//
//   zb-h1         F0- F1- ....I0- W0- F2- I1- W1- F3- I2- W2- I3- W3-
//                 ....F0- I0- F1- I1- W0- F2- I2- W1- F3- I3- W2- W3-
//
//   gpipe        all forwards, then all backwards: m micro-batches in flight (arXiv 1811.06965)
//   1f1b         backward as soon as it can: the same idle time, but only p - s in flight on stage
//                s (PipeDream-flush, described in arXiv 2104.04473)
//   interleaved  1f1b where a stage has v chunks of the model (here F and f). A chunk is a
//                v-th of a stage, so the pipeline fills in a v-th of the time. It sends v times
//                the messages (2v - 1 times on the first and last stage), and has more in flight
//                (arXiv 2104.04473)
//   zb-h1        1f1b with B cut in two. The stage before waits for I, the gradient of the input.
//                Nobody waits for W, the gradient of the weights, so W fills gaps. p are in flight
//                on every stage (arXiv 2401.10241)
//
// All four are one loop: some forwards ahead, then one forward and one backward in turn. They
// differ in how many forwards are ahead. In zb-h1, W also comes s backwards late on stage s: the
// later a stage is, the fewer micro-batches wait on it for their I, so the more may wait for their
// W. With four stages, in the steady part:
//
//   stage 0   F3 I0 W0 F4 I1 W1      3 forwards ahead, none waits for W
//   stage 1   F3 I1 W0 F4 I2 W1      2 ahead, 1 waits
//   stage 3   F3 I3 W0 F4 I4 W1      none ahead, 3 wait
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "common/error.h"
#include "common/names.h"

namespace ladder {

enum class PipelineKind : uint8_t { GPipe, OneFOneB, Interleaved, ZbH1 };
constexpr auto names_of(PipelineKind) {
  return std::array{"gpipe", "1f1b", "interleaved", "zb-h1"};
}

/// How many messages of one kind, from a stage to its neighbor, may wait to be received. One more
/// send has to wait.
constexpr int64_t kMailbox = 2;

enum class Do : uint8_t {
  Forward,
  Backward,        ///< both gradients
  BackwardInput,   ///< for which the model chunk before waits
  BackwardWeight,  ///< for which nobody waits
  RecvActivation,
  SendActivation,
  RecvGradient,
  SendGradient
};
constexpr auto names_of(Do) {
  return std::array{"Forward",        "Backward",       "BackwardInput", "BackwardWeight",
                    "RecvActivation", "SendActivation", "RecvGradient",  "SendGradient"};
}

/// What a stage does with one micro-batch in one of its chunks.
struct Action {
  Do what = Do::Forward;
  int64_t micro = 0;  ///< 0 .. m-1
  int64_t chunk = 0;  ///< 0 .. v-1; of a message: the chunk on this stage
  bool operator==(const Action&) const = default;
};

/// "Forward of micro-batch 3, chunk 0"
inline std::string to_string(const Action& a) {
  return fmt::format("{} of micro-batch {}, chunk {}", to_string(a.what), a.micro, a.chunk);
}

/// The model has p v model chunks. Number g reads what g - 1 wrote. Stage s has those with g = c p
/// + s, so g + 1 is always on the next stage; after the last stage comes the first.
struct Pipeline {
  PipelineKind kind = PipelineKind::GPipe;
  int64_t stages = 1;                      ///< p
  int64_t chunks = 1;                      ///< v: 1, unless the schedule is interleaved
  int64_t micros = 1;                      ///< m
  std::vector<std::vector<Action>> lists;  ///< [stage]: its actions, in order

  int64_t model_chunk(int64_t stage, int64_t chunk) const { return chunk * stages + stage; }
};

inline bool is_send(Do what) { return what == Do::SendActivation || what == Do::SendGradient; }
inline bool is_receive(Do what) { return what == Do::RecvActivation || what == Do::RecvGradient; }

/// Which gradients a backward computes: of the input, of the weights, or both.
inline bool wants_input(Do what) { return what == Do::Backward || what == Do::BackwardInput; }
inline bool wants_weight(Do what) { return what == Do::Backward || what == Do::BackwardWeight; }
/// Whether the micro-batch needs nothing more in its model chunk after this action: the gradients
/// of the weights come last.
inline bool ends_flight(Do what) { return wants_weight(what); }

/// The stage at the other end of a message. Activations go to the next stage, and gradients come
/// from there.
inline int64_t peer(int64_t stage, Do what, int64_t stages) {
  const bool next = what == Do::SendActivation || what == Do::RecvGradient;
  return (stage + (next ? 1 : stages - 1)) % stages;
}

/// Adds messages to the actions `compute` of stage s: what a chunk receives before one and sends
/// after it.
inline std::vector<Action> with_messages(const Pipeline& pipeline, int64_t s,
                                         const std::vector<Action>& compute) {
  std::vector<Action> all;
  for (const Action& a : compute) {
    const int64_t g = pipeline.model_chunk(s, a.chunk);
    const bool first = g == 0, last = g == pipeline.stages * pipeline.chunks - 1;
    const auto add = [&](Do what) { all.push_back({what, a.micro, a.chunk}); };
    const bool forward = a.what == Do::Forward, backward = wants_input(a.what);
    if (forward && !first) add(Do::RecvActivation);
    if (backward && !last) add(Do::RecvGradient);
    add(a.what);
    if (forward && !last) add(Do::SendActivation);
    if (backward && !first) add(Do::SendGradient);
  }
  return all;
}

/// How many forwards (of a chunk each) stage s does before one forward and one backward take turns.
inline int64_t forwards_ahead(const Pipeline& pipeline, int64_t s) {
  const int64_t p = pipeline.stages, v = pipeline.chunks, m = pipeline.micros;
  int64_t ahead = p - s - 1;  // one for each stage after this one
  if (pipeline.kind == PipelineKind::GPipe) ahead = m;
  // All chunks but the last. Then the last goes through the stages after this one, and its gradient
  // comes back: meanwhile this stage goes on with forwards, where 1f1b waits.
  if (pipeline.kind == PipelineKind::Interleaved) ahead = (v - 1) * p + 2 * (p - s - 1);
  return std::min(ahead, v * m);
}

/// The k-th forward or backward of any stage. p micro-batches go through one chunk before they go
/// through the next. In backward, the last chunk comes first. With one chunk this is micro-batch k.
/// With p = v = 2 the forwards k = 0, 1, ... 7 are of micro-batches 0 1 0 1 2 3 2 3 in chunks
/// 0 0 1 1 0 0 1 1.
inline Action nth(const Pipeline& pipeline, Do what, int64_t k) {
  const int64_t p = pipeline.stages, v = pipeline.chunks;
  const int64_t c = k / p % v;
  return {what, k / (p * v) * p + k % p, what == Do::Forward ? c : v - 1 - c};
}

/// What stage s computes, in order.
inline std::vector<Action> compute_order(const Pipeline& pipeline, int64_t s) {
  const int64_t n = pipeline.chunks * pipeline.micros, ahead = forwards_ahead(pipeline, s);
  const bool split = pipeline.kind == PipelineKind::ZbH1;
  std::vector<Action> list;
  const auto add = [&](Do what, int64_t k) { list.push_back(nth(pipeline, what, k)); };
  for (int64_t k = 0; k < ahead; ++k) add(Do::Forward, k);
  int64_t weights = 0;
  for (int64_t k = 0; k < n; ++k) {
    const bool forward = ahead + k < n;
    if (forward) add(Do::Forward, ahead + k);
    add(split ? Do::BackwardInput : Do::Backward, k);
    // W comes s backwards late, and fills gaps once no forward is left. There are p - s - 1
    // forwards ahead, one in progress and s that wait for W. So p micro-batches are in flight on
    // every stage.
    if (split && (k >= s || !forward)) add(Do::BackwardWeight, weights++);
  }
  while (split && weights < n) add(Do::BackwardWeight, weights++);
  return list;
}

/// @param chunks of a stage, if interleaved; other schedules have one, and so has a single stage
/// @throws UserError that names what is legal
inline Pipeline make_pipeline(PipelineKind kind, int64_t stages, int64_t chunks, int64_t micros) {
  const bool interleaved = kind == PipelineKind::Interleaved && stages > 1;
  constexpr int64_t kMost = 1 << 22;  // for each, the lists below take memory and time
  const int64_t model_chunks = interleaved ? stages * chunks : stages;
  if (model_chunks > kMost || micros > kMost / model_chunks)
    throw UserError(
        "a pipeline of {} model chunks and {} micro-batches is too long; legal is a product of at "
        "most {}",
        model_chunks, micros, kMost);
  if (interleaved && chunks < 2)
    throw UserError("--pipeline interleaved takes --chunks of at least 2, not {}", chunks);
  if (interleaved && micros % stages != 0)
    throw UserError(
        "--pipeline interleaved with {} stages and {} micro-batches; legal are {}, {}, {}, ... "
        "micro-batches",
        stages, micros, stages, 2 * stages, 3 * stages);
  Pipeline pipeline{.kind = kind,
                    .stages = stages,
                    .chunks = interleaved ? chunks : 1,
                    .micros = micros,
                    .lists = {}};
  for (int64_t s = 0; s < stages; ++s)
    pipeline.lists.push_back(with_messages(pipeline, s, compute_order(pipeline, s)));
  return pipeline;
}

}  // namespace ladder
