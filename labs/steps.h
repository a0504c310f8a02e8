// Steps of a check's own code, of whatever kind: a count of calls sees one function alone, and who
// needs too much work may do it with another. The compiler calls the function below at the begin of
// each basic block of check.cpp and of the headers that it includes (labs/CMakeLists.txt). Code of
// libraries is not counted. Compilers differ in what is a block, so only ratios are worth a row.
#pragma once

#include <cstdint>

namespace ladder::lab {
inline int64_t steps_taken = 0;
}

#ifdef __clang__
#define LADDER_NO_STEPS __attribute__((no_sanitize("coverage")))
#else
#define LADDER_NO_STEPS __attribute__((no_sanitize_coverage))
#endif
extern "C" LADDER_NO_STEPS void __sanitizer_cov_trace_pc();  // NOLINT: the compiler chose the name
extern "C" LADDER_NO_STEPS void __sanitizer_cov_trace_pc() {
  ++ladder::lab::steps_taken;
}  // NOLINT

namespace ladder::lab {

/// The steps of a call.
template <class Call>
int64_t steps_of(Call&& call) {
  const int64_t before = steps_taken;
  call();
  return steps_taken - before;
}

}  // namespace ladder::lab
