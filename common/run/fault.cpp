#include "common/run/fault.h"

#include <algorithm>
#include <charconv>
#include <span>

#include "common/error.h"

namespace ladder {
namespace {

constexpr std::array<std::string_view, 5> kKinds = {"", "skip", "corrupt", "twice", "swap"};

// Those whose loss a chapter's run can show.
constexpr std::span kCollectives(kOperationNames.data(), 4);

/// Index of `name` in `names`; -1 if it is not there.
template <class Names>
int index_of(const Names& names, std::string_view name) {
  const auto at = std::find(names.begin(), names.end(), name);
  return at == names.end() || name.empty() ? -1 : static_cast<int>(at - names.begin());
}

}  // namespace

void FaultOptions::add_to(CommandLine& line) {
  line.group("Ranks");
  line.add(
      "--fault", text,
      "an experiment: KIND:OPERATION:N, as skip:all_reduce:3; the N-th such operation (from 0) "
      "is skipped, done twice, corrupted or has its halves swapped");
}

Fault FaultOptions::fault() const {
  if (text.empty()) return {};
  const size_t first = text.find(':'), second = text.find(':', first + 1);
  const auto part = [&](size_t begin, size_t end) {
    return std::string_view(text).substr(begin, end - begin);
  };
  Fault fault;
  if (first != std::string::npos && second != std::string::npos) {
    const int kind = index_of(kKinds, part(0, first));
    const int operation = index_of(kCollectives, part(first + 1, second));
    const char* end = text.data() + text.size();
    const auto number = std::from_chars(text.data() + second + 1, end, fault.nth);
    if (kind > 0 && operation >= 0 && number.ec == std::errc{} && number.ptr == end &&
        fault.nth >= 0) {
      fault.kind = static_cast<Fault::Kind>(kind);
      fault.operation = static_cast<Operation>(operation);
      return fault;
    }
  }
  throw UserError(
      "--fault {}; legal are KIND:OPERATION:N, where KIND is skip, corrupt, twice or swap, "
      "OPERATION all_reduce, reduce_scatter, all_gather or broadcast, and N at least 0",
      text);
}

RankBody FaultOptions::planted(RankBody body) const {
  const Fault planted = fault();
  if (planted.kind == Fault::Kind::None) return body;
  return [planted, body = std::move(body)](Comm& comm) {
    FaultyComm faulty(comm, planted);
    body(faulty);
  };
}

}  // namespace ladder
