#include "common/comm/call.h"

#include <fmt/format.h>

namespace ladder {

std::string to_string(const Call& call) {
  std::string text{to_string(call.operation)};
  if (call.operation == Operation::Barrier)
    return call.variant.empty() ? text : std::string(call.variant);
  text += fmt::format(" of {} {}", call.payload.size(), dtype_text(call.payload.dtype));
  if (!call.variant.empty()) text += fmt::format(" ({})", call.variant);
  if (call.combine == Combine::Max) text += " (max)";
  if (call.operation == Operation::Broadcast || call.operation == Operation::Recv)
    text += fmt::format(" (from {})", call.root);
  if (call.operation == Operation::Send) text += fmt::format(" (to {})", call.root);
  return text;
}

OperationCount& OperationCount::operator+=(const OperationCount& other) {
  calls += other.calls;
  payload_bytes += other.payload_bytes;
  wire_bytes += other.wire_bytes;
  return *this;
}

CommStatistics& CommStatistics::operator+=(const CommStatistics& other) {
  for (size_t i = 0; i < counts.size(); ++i) counts[i] += other.counts[i];
  return *this;
}

int64_t CommStatistics::wire_bytes() const {
  int64_t sum = 0;
  for (const OperationCount& count : counts) sum += count.wire_bytes;
  return sum;
}

}  // namespace ladder
