// Call: the operation that a rank is in. It is for statistics, for error messages, and for
// comparing it with the calls of other ranks.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "common/names.h"
#include "kernels/tensor.h"

namespace ladder {

/// What a rank asks of its group.
enum class Operation : uint8_t {
  AllReduce,
  ReduceScatter,
  AllGather,
  Broadcast,
  AllToAll,
  Send,
  Recv,
  Barrier,
};
constexpr auto names_of(Operation) {
  return std::array{"all_reduce", "reduce_scatter", "all_gather", "broadcast",
                    "all_to_all", "send",           "recv",       "barrier"};
}

/// How elements of several ranks become one. Max of floats is NaN if one of them is NaN.
enum class Combine : uint8_t { Sum, Max };

struct Call {
  Operation operation = Operation::Barrier;
  Tensor payload = {};             ///< the larger tensor: all that is scattered or gathered
  Tensor result = {};              ///< what this rank has afterwards; null for messages
  Combine combine = Combine::Sum;  ///< of an all-reduce
  int root = 0;                    ///< for a broadcast; of a message: the other rank
  std::string_view variant = {};   ///< a literal: how it is done, as "halving"; or "split"
};

/// Whether two calls mean the same operation. Their buffers may differ.
inline bool agree(const Call& a, const Call& b) {
  return a.operation == b.operation && a.payload.dtype == b.payload.dtype &&
         a.payload.size() == b.payload.size() && a.combine == b.combine && a.root == b.root &&
         a.variant == b.variant;
}

/// "all_reduce of 1000 F32 (max)", "broadcast of 3 I64 (from 2)"
std::string to_string(const Call& call);

/// What one rank did in one kind of operation.
struct OperationCount {
  int64_t calls = 0;
  int64_t payload_bytes = 0;
  int64_t wire_bytes = 0;  ///< that this rank sent, not what it received
  OperationCount& operator+=(const OperationCount& other);
  bool operator==(const OperationCount&) const = default;
};

/// What one rank communicated. It is "comm" in --report.
struct CommStatistics {
  std::array<OperationCount, kNames<Operation>.size()> counts{};

  OperationCount& operator[](Operation op) { return counts[static_cast<size_t>(op)]; }
  const OperationCount& operator[](Operation op) const { return counts[static_cast<size_t>(op)]; }
  /// Adds what a rank did in another group.
  CommStatistics& operator+=(const CommStatistics& other);
  int64_t wire_bytes() const;
};

}  // namespace ladder
