#include "common/comm/run_ranks.h"
#include "tests/common/comm/on_ranks.h"

namespace ladder::test {

void on_ranks(const std::function<void(Comm&)>& body) {
  for (int ranks : {1, 2, 3, 4, 5, 8}) {
    SCOPED_TRACE(std::to_string(ranks) + " ranks");
    run_threads(ranks, body);
  }
}

std::string expected_kind(int ranks) { return ranks == 1 ? "self" : "thread"; }

}  // namespace ladder::test
