#include "common/run/fault.h"

#include <algorithm>
#include <array>
#include <optional>

#include "common/comm/failure.h"
#include "common/error.h"
#include "common/number_in.h"

namespace ladder {
namespace {

// Operations whose faults a chapter's run can show.
constexpr std::array kOperations = {Operation::AllReduce, Operation::ReduceScatter,
                                    Operation::AllGather, Operation::Broadcast,
                                    Operation::AllToAll,  Operation::Recv};

/// The operation of that name, if it can have a fault.
std::optional<Operation> operation_of(std::string_view name) {
  const std::optional<Operation> operation = named<Operation>(name);
  const bool known = operation && std::ranges::count(kOperations, *operation) > 0;
  return known ? operation : std::nullopt;
}

/// A run without its fault is like any other, and many faults change nothing that a reader sees. So
/// each run says whether its fault happened. Ranks may receive different numbers of messages; the
/// largest number counts.
void tell_whether_it_happened(Comm& comm, const std::string& text, const Fault& fault,
                              int64_t seen) {
  comm.all_reduce({.ptr = &seen, .dtype = Dtype::I64, .shape = {1}}, Combine::Max);
  if (comm.rank() != 0) return;
  const bool message = fault.operation == Operation::Recv;
  const std::string_view who = message ? "rank received" : "group of ranks had";
  const std::string_view what = message ? "message" : to_string(fault.operation);
  tell(fmt::format("note: --fault {} {} {} {} {}s", text,
                   seen > fault.nth ? "happened: a" : "never happened: no", who,
                   seen > fault.nth ? fmt::format("{}", seen) : fmt::format("more than {}", seen),
                   what));
}

}  // namespace

Fault fault_of(const std::string& text) {
  if (text.empty()) return {};
  const size_t first = text.find(':'), second = text.find(':', first + 1);
  const auto part = [&](size_t begin, size_t end) {
    return std::string_view(text).substr(begin, end - begin);
  };
  if (first != std::string::npos && second != std::string::npos) {
    const std::optional<Operation> operation = operation_of(part(first + 1, second));
    Fault fault{.kind = named<Fault::Kind>(part(0, first)).value_or(Fault::Kind::None),
                .operation = operation.value_or(Operation::Recv),
                .nth = number_in<int64_t>(part(second + 1, text.size())).value_or(-1)};
    const bool again = fault.kind == Fault::Kind::Twice && operation == Operation::Recv;
    if (fault.kind != Fault::Kind::None && operation && !again && fault.nth >= 0) return fault;
  }
  throw UserError(
      "--fault {}; legal are KIND:OPERATION:N, where KIND is skip, corrupt, twice, swap, stall, "
      "die or fail, OPERATION all_reduce, reduce_scatter, all_gather, broadcast, all_to_all or "
      "recv (never twice), and N at least 0",
      text);
}

RankBody planted(const std::string& text, RankBody body) {
  const Fault fault = fault_of(text);
  if (fault.kind == Fault::Kind::None) return body;
  return [fault, body = std::move(body), text](Comm& comm) {
    if (fault.kind == Fault::Kind::Stall && comm.size() == 1)
      throw UserError("--fault {}: nobody would notice; legal from --ranks 2 on", text);
    FaultyComm faulty(comm, fault);
    body(faulty);
    comm.attach(nullptr);  // the device is gone, as body() has ended
    tell_whether_it_happened(comm, text, fault, faulty.seen());
  };
}

}  // namespace ladder
