// CHECK: a claim about the program itself. It stays on in Release builds.
// A wrong flag or file is no CHECK: it throws a UserError (common/error.h).
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

#ifdef __CUDACC__  // nvcc: otherwise fmt takes it for a compiler without constexpr
#define FMT_USE_CONSTEXPR 1
#endif
#include <fmt/format.h>

namespace ladder {

/// A broken claim of the program about itself: a bug, never a user's mistake.
class CheckError : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

/// The machine has no room for a tensor. The user can ask for less.
class OutOfMemory : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The quotient n / d of a division that must leave no remainder.
/// @throws CheckError if `d` does not divide `n`.
template <class Int>
constexpr Int div_exact(Int n, Int d) {
  if (d == 0 || n % d != 0) throw CheckError(fmt::format("{} does not divide {}", d, n));
  return n / d;
}

/// How many parts of `size` are needed to hold n.
constexpr int64_t ceil_div(int64_t n, int64_t size) { return (n + size - 1) / size; }

/// Smallest multiple of `step` that is at least `n`.
template <class Int>
constexpr Int round_up(Int n, Int step) {
  return (n + step - 1) / step * step;
}

}  // namespace ladder

/// CHECK(condition, "format {}", values...): throws CheckError with file and line if the condition
/// is false.
#define CHECK(condition, ...)                                                                      \
  do {                                                                                             \
    if (!(condition))                                                                              \
      throw ::ladder::CheckError(                                                                  \
          fmt::format("{}:{}: {}: {}", __FILE__, __LINE__, #condition, fmt::format(__VA_ARGS__))); \
  } while (false)
