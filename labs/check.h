// What the checks of all labs share: cases, and what is measured in them.
//
// A check is a program that is compiled twice: with the student's file and with the chapter's. It
// judges nothing. Each writes down what it has measured, and lab.py, which is another process,
// compares the two. So what the student's code prints, or how it ends, says nothing of the score.
//
// Sizes, ranks and random numbers of a case follow from one seed, which is another when graded.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/random.h"
#include "kernels/tensor.h"

namespace ladder {
class Arena;
}

namespace ladder::lab {

/// Whose file a program was compiled with, and what for.
enum class Role : uint8_t {
  Student,    ///< measures, and is not believed where it need not be
  Reference,  ///< measures what is right; it alone computes what must come out
  Judge,      ///< the reference's program: measures what the student's functions have returned
};

/// Where a check puts what it has measured.
class Sheet {
 public:
  /// What functions have returned: [case, what].
  using Returned = std::map<std::pair<std::string, std::string>, std::string>;

  /// @param rows file descriptor that rows are written to
  Sheet(int rows, uint64_t seed, Role role, Returned returned)
      : rows_(rows), seed_(seed), role_(role), returned_(std::move(returned)) {}

  uint64_t seed() const { return seed_; }

  /// One of `choices`, by the seed: a size of a case.
  template <class T>
  T pick(std::string_view what, std::initializer_list<T> choices) const {
    return choices.begin()[Random(seed_, what).below(choices.size(), 0)];
  }
  /// n normal numbers that depend on the seed, `name` and `stream`.
  std::vector<float> normals(std::string_view name, int64_t n, uint64_t stream = 0) const;
  /// Fills x, F32, with them.
  void draw(const Tensor& x, std::string_view name, uint64_t stream = 0) const;
  /// A new tensor, F32, that they fill.
  Tensor drawn(Arena& arena, std::string_view name, Shape shape, uint64_t stream = 0) const;

  /// A case: what `body` measures is written under `name`. An exception ends the case, and is
  /// written down, too.
  void run(const std::string& name, const std::function<void()>& body);

  /// Bits that must be those of the reference. F32, BF16 or F16
  void bits(std::string_view gate, std::span<const float> values);
  void bits(std::string_view gate, const Tensor& values);
  /// The same of words and numbers.
  void text(std::string_view gate, std::string_view value);
  /// A counted figure; and what it is without the idea of the lab.
  void count(std::string_view gate, int64_t figure);
  void without_idea(std::string_view gate, int64_t figure);

  /// What `rows` writes by the above is what must come out, in a lab whose answer is not in the
  /// tree. Where a student's file is compiled with the check, none of this code is. It comes before
  /// what is measured, since the stub throws.
#ifdef LADDER_STUDENT
  template <class Rows>
  void wanted(Rows&&) {}
#else
  void wanted(const std::function<void()>& rows);
#endif

  /// What a student's function returns, as words, where all that is measured follows from it: then
  /// a Judge measures it, without the student's code, and the student's own figures are not
  /// believed.
  /// @param make calls the function; a Judge does not
  std::string returned(const std::string& what, const std::function<std::string()>& make);

  /// The last row: a program that ends itself without it has no others, either.
  void end() { row("", "end", ""); }

 private:
  void row(std::string_view gate, std::string_view kind, std::string_view value);

  int rows_;
  uint64_t seed_;
  Role role_;
  Returned returned_;
  std::string case_;
  bool wanted_ = false;
};

/// All cases, once. Each lab's check.cpp defines it; labs/check.cpp has main(), which calls it.
void cases(Sheet& sheet);

}  // namespace ladder::lab
