// Every operation on a batch, as one call with operands: what the tests of bits do with each. A
// new operation is a row of the table in calls.cpp.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "tests/kernels/testing.h"

namespace ladder::test {

/// What an operand is, and so how it is cut and stored.
enum class Kind : uint8_t {
  Act,       ///< of each sequence (B,..), in the dtype of activations
  Stat,      ///< of each sequence, F32 beside 16-bit activations
  Index,     ///< of each sequence, integers
  Weight,    ///< of all sequences, in the dtype of activations
  Constant,  ///< of all sequences, as it is
  Sum,       ///< an output of all sequences, F32 beside 16-bit activations
};
constexpr bool is_of_sequences(Kind kind) { return kind <= Kind::Index; }

struct Operand {
  Tensor x;
  Kind kind;
};
struct Output {
  Shape shape;
  Kind kind;
};

/// What a call runs with.
struct Run {
  const Kernels& k;
  const Ctx& ctx;
  std::span<const Tensor> out, in;
  Into into;
};

/// An operation with operands.
struct Call {
  const char* name;
  std::vector<Output> out;
  std::vector<Operand> in;
  std::function<void(const Run&)> run;

  /// Whether it sums over sequences: it writes its sums, or adds them.
  bool sums() const { return out[0].kind == Kind::Sum; }
  /// Outputs that nothing has written, for activations of this dtype.
  std::vector<Tensor> outputs(Sandbox& box, Dtype dtype) const;
  /// On sequences [begin, begin + count); `to` has outputs of those.
  void on(const Kernels& k, const Ctx& ctx, std::span<const Tensor> to, int64_t begin,
          int64_t count, Into into = Into::Write) const;
  /// The same with all activations and weights stored in another dtype.
  Call in_dtype(Sandbox& box, Dtype dtype) const;
};

/// Of inputs (B,T,C), with N output columns or classes.
struct CallSizes {
  int64_t B, T, C = 37, N = 45;
};
/// Those of single rows and elements: norms, activations, sums. Numbers of `box`, in its dtype.
std::vector<Call> calls_of_rows(Sandbox& box, const CallSizes& sizes, Dtype dtype);
/// And all others.
std::vector<Call> calls(Sandbox& box, const CallSizes& sizes, Dtype dtype);
}  // namespace ladder::test
