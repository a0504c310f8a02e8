// What checks share that start several ranks: the ranks, as threads, and what each of them has
// found.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "common/comm/run_ranks.h"
#include "common/model/config.h"
#include "common/run/backend.h"
#include "common/run/comm_stream.h"
#include "common/run/options.h"
#include "kernels/arena.h"
#include "kernels/narrow.h"
#include "labs/check.h"

namespace ladder::lab {

/// Calls body(comm, found) on each rank. Found is what one rank has found.
/// @param patience a rank that lets others wait for so long ends all
template <class Found, class Body>
std::vector<Found> on_ranks(int64_t ranks, Body&& body,
                            std::chrono::seconds patience = std::chrono::seconds(5)) {
  std::vector<Found> found(static_cast<size_t>(ranks));
  run_threads(
      static_cast<int>(ranks),
      [&](Comm& comm) { body(comm, found[static_cast<size_t>(comm.rank())]); }, patience);
  return found;
}

/// A figure of all ranks: its sum, and the largest.
template <class Found>
int64_t sum_of(const std::vector<Found>& found, int64_t Found::*figure) {
  int64_t sum = 0;
  for (const Found& one : found) sum += one.*figure;
  return sum;
}
template <class Found>
int64_t most_of(const std::vector<Found>& found, int64_t Found::*figure) {
  int64_t most = 0;
  for (const Found& one : found) most = std::max(most, one.*figure);
  return most;
}

/// The numbers that the ranks of a group have in the world, in the group's order. Each rank of the
/// group gives its own.
inline std::vector<int64_t> members(Comm& group, int64_t rank) {
  std::vector<int64_t> all(static_cast<size_t>(group.size()));
  group.all_gather({.ptr = all.data(), .dtype = Dtype::I64, .shape = {group.size()}},
                   {.ptr = &rank, .dtype = Dtype::I64, .shape = {1}});
  return all;
}

/// The memory of one rank, and a context of one thread.
struct OneRank {
  /// @param options `comm` is set here
  explicit OneRank(Comm& comm, CtxOptions options = {}) {
    run.ranks = comm.size();
    run.threads = 1;
    run.quiet = true;
    options.comm = &comm;
    ctx = make_ctx(run, arena, nullptr, options);
  }

  RunOptions run;
  Arena arena;
  Ctx ctx;
};

/// Waits until all is done that the stream was given: jobs run in order.
inline void drain(CommStream& stream) {
  stream.run([](const Ctx&, Collectives&) {}).wait();
}
/// The bytes that the stream has sent when all is done that it was given.
inline int64_t sent_so_far(CommStream& stream) {
  drain(stream);
  return stream.group().statistics().wire_bytes();
}
/// A stream with a thread of its own has other things to do for so long.
inline Pending delay(CommStream& stream, std::chrono::milliseconds time) {
  if (!stream.has_thread()) return {};
  return stream.run([time](const Ctx&, Collectives&) { std::this_thread::sleep_for(time); });
}

/// The elements of a tensor, F32 or BF16.
inline std::vector<float> numbers(const Tensor& x) {
  std::vector<float> all(static_cast<size_t>(x.size()));
  if (x.dtype == Dtype::F32)
    std::copy_n(x.data<float>(), x.size(), all.begin());
  else
    std::transform(x.data<Bf16>(), x.data<Bf16>() + x.size(), all.begin(), value_of<Bf16>);
  return all;
}

/// Numbers, and where they are from, such as "step 1, section 0".
struct Row {
  std::string place;
  std::vector<float> numbers;
};
/// The rows of one rank under the name of a gate.
inline void write(Sheet& sheet, std::string_view gate, size_t rank, const std::vector<Row>& rows) {
  for (const Row& row : rows)
    sheet.bits(fmt::format("{}/rank {}: {}", gate, rank, row.place), row.numbers);
}

/// A model that is as small as can be; a check changes what it is about.
inline GptConfig small_gpt() {
  return {.name = "lab",
          .layers = 1,
          .heads = 1,
          .channels = 8,
          .seq_len = 4,
          .positions = 4,
          .vocab = 11,
          .padded_vocab = 16};
}

}  // namespace ladder::lab
