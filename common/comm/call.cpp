#include "common/comm/call.h"

#include <fmt/format.h>

namespace ladder {

std::string_view dtype_text(Dtype dtype) {
  switch (dtype) {
    case Dtype::F32: return "F32";
    case Dtype::F64: return "F64";
    case Dtype::I32: return "I32";
    case Dtype::I64: return "I64";
    case Dtype::U8: return "U8";
    case Dtype::BF16: return "BF16";
    case Dtype::F16: return "F16";
    case Dtype::E4M3: return "F8_E4M3";
    case Dtype::E5M2: return "F8_E5M2";
  }
  return "?";
}

std::string to_string(const Call& call) {
  std::string text{to_string(call.operation)};
  if (call.operation == Operation::Barrier) return text;
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
