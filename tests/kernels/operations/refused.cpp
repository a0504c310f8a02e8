// Every operation with operands that do not fit, one by one: wrong in an extent, in the number of
// axes, in its dtype, or null. Operands and mistakes are made from kernels/operations.inc, so a new
// operation needs no line here.
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <vector>

#include "kernels/declaration.h"
#include "tests/kernels/operations/vs_ref.h"

namespace ladder::test {
namespace {

using declared::Declaration;
using declared::Extent;
using declared::Kind;
using declared::Operand;
using declared::Term;

/// Four chunks of 32 tokens. The queries are the first and the last, the keys are the first.
constexpr AttentionPositions kPlace{.T = 128, .queries = {0, 96}, .keys = 0};

/// What a letter stands for in a call that is right.
int64_t extent(std::string_view op, std::string_view letter) {
  static const std::map<std::string_view, int64_t> extents = {
      {"1", 1},  {"kLimbs", kLimbs}, {"B", 2},   {"T", 3},   {"C", 4}, {"V", 5},
      {"P", 70}, {"R", 6},           {"N", 5},   {"K", 4},   {"F", 4}, {"NH", 4},
      {"HS", 4}, {"NKV", 2},         {"Tq", 64}, {"Tk", 32}, {"E", 4}, {"k", 2},
      {"M", 12}, {"G", 2},           {"D", 2},   {"Q", 1}};
  return op == "adafactor_update" && letter == "M" ? extents.at("R") : extents.at(letter);
}
int64_t number(std::string_view name) {
  if (name == "T") return kPlace.T;
  if (name == "vocab" || name == "NH") return extent("", name == "NH" ? "NH" : "V");
  return name == "leaves" || name == "count";
}

/// Operands of one call, in the order of its declaration.
struct Operands {
  std::vector<Tensor> tensors;
  std::vector<int64_t> numbers;
};

/// Hands the operands to the parameters of an operation; other parameters are of no account.
class Parameters {
 public:
  explicit Parameters(const Operands& all) : all_(all) {}

  template <class P>
  P next() {
    if constexpr (std::is_same_v<P, Tensor>)
      return tensor();
    else if constexpr (std::is_same_v<P, ExpertRows>)
      return {.offsets = tensor(), .row = tensor(), .from = tensor()};
    else if constexpr (std::is_same_v<P, CachedPlace>)
      return cached_place();
    else if constexpr (std::is_same_v<P, AttentionPositions>)
      return kPlace;
    else if constexpr (std::is_same_v<P, int64_t> || std::is_same_v<P, int>)
      return static_cast<P>(number());
    else
      return P{};
  }

 private:
  Tensor tensor() { return all_.tensors.at(tensors_++); }
  int64_t number() { return all_.numbers.at(numbers_++); }
  CachedPlace cached_place() {
    const int64_t first = number();
    return {.T = number(), .first = first};
  }

  const Operands& all_;
  size_t tensors_ = 0, numbers_ = 0;
};

template <class... P>
void call(const Ctx& ctx, void (*operation)(const Ctx&, P...), const Operands& operands) {
  Parameters parameters(operands);
  // Braces, since they are read from left to right.
  const std::tuple<std::decay_t<P>...> all{parameters.next<std::decay_t<P>>()...};
  std::apply([&](const auto&... one) { operation(ctx, one...); }, all);
}

class Refused : public VsRef {
 protected:
  struct Operation {
    Declaration declared;
    std::function<void(const Operands&)> run;
  };
  std::vector<Operation> operations() {
    return {
#define LADDER_OPERATION(op, operands)            \
  {declared::Parser(#op, operands).declaration(), \
   [this](const Operands& o) { call(ctx, k.op, o); }},
#include "kernels/operations.inc"
    };
  }

  static Dtype dtype_of(const Operand& o) {
    if (o.kind == Kind::Fp8) return Dtype::E4M3;
    return o.kind == Kind::Exact ? o.exact : Dtype::F32;
  }
  static int64_t value(std::string_view op, const Term& term) {
    return term.count * extent(op, declared::kLetters[term.letter]);
  }
  static Shape shape_of(const Declaration& d, int operand) {
    const Operand& o = d.operands.items[static_cast<size_t>(operand)];
    Shape shape;
    if (o.same_leading)
      shape = {2, 3};
    else if (o.product != declared::kNone)
      shape = {extent(d.op, declared::kLetters[o.product])};
    const int leading = shape.rank;
    shape.rank += o.rank;
    for (const declared::Axis& axis : d.axes)
      if (axis.operand == operand) {
        const Extent& e = axis.extent;
        const int64_t sum = value(d.op, e.a) + (e.b.count == 0 ? 0 : value(d.op, e.b));
        shape.dims[leading + o.rank + axis.axis] = sum * value(d.op, {1, e.times});
      }
    return shape;
  }
  /// Zeros: token 0, expert 0, no rows of experts.
  Tensor make(Dtype dtype, const Shape& shape) {
    Tensor x = host.zeros(dtype, shape);
    if (is_fp8(dtype)) x.fp8 = &scale_;
    x = dtype == Dtype::I32 || dtype == Dtype::I64 ? share(x) : up(x);
    if (is_fp8(dtype) && k.transposes_fp8) x.transposed = out(dtype, shape).ptr;
    return x;
  }
  Operands right(const Declaration& d) {
    Operands all;
    for (const Operand& o : d.operands)
      all.tensors.push_back(make(dtype_of(o), shape_of(d, static_cast<int>(all.tensors.size()))));
    for (const declared::Number& n : d.numbers) all.numbers.push_back(number(n.name));
    return all;
  }

  /// Calls with one operand that is wrong. It must be refused by name before anything is written;
  /// if it is not refused, it is `accepted`.
  void with(const Operation& operation, const Operands& right, size_t at, const Tensor& wrong,
            const char* mistake) {
    const std::string op(operation.declared.op), name(operation.declared.operands.items[at].name);
    Operands operands = right;
    operands.tensors[at] = wrong;
    std::vector<Tensor> before;
    for (const Tensor& x : operands.tensors) before.push_back(down_or_null(x));
    try {
      operation.run(operands);
      std::string& all = accepted[op];
      all += (all.empty() ? "" : ", ") + name + " " + mistake;
    } catch (const CheckError& error) {
      EXPECT_TRUE(std::string_view(error.what()).find(op + ": ") != std::string_view::npos)
          << op << " with " << name << ", " << mistake << ": " << error.what();
      for (size_t i = 0; i < before.size(); ++i) {
        const Tensor after = down_or_null(operands.tensors[i]);
        EXPECT_TRUE(!after || same_bits(after, before[i])) << op << " with " << mistake;
      }
    }
  }
  static Tensor down_or_null(const Tensor& x) { return x ? down(x) : Tensor{}; }

  /// One operand is narrow beside FP32.
  void narrow_operands(const Operation& operation) {
    const Operands all = right(operation.declared);
    for (size_t i = 0; i < all.tensors.size(); ++i)
      if (const Tensor& x = all.tensors[i]; x.dtype == Dtype::F32)
        with(operation, all, i, make(Dtype::BF16, x.shape), "BF16");
  }

  void mistakes(const Operation& operation) {
    const Declaration& d = operation.declared;
    const Operands all = right(d);
    EXPECT_NO_THROW(operation.run(all)) << d.op;
    for (size_t i = 0; i < d.operands.count; ++i) {
      const Operand& o = d.operands.items[i];
      const Tensor& x = all.tensors[i];
      for (int axis = 0; axis < x.shape.rank; ++axis) {
        Shape shape = x.shape;
        ++shape.dims[axis];
        with(operation, all, i, make(x.dtype, shape), ("axis " + std::to_string(axis)).c_str());
      }
      Shape more{1};
      for (int axis = 0; axis < x.shape.rank && more.rank < kMaxDims; ++axis)
        more.dims[more.rank++] = x.shape.dims[axis];
      if (x.shape.rank < kMaxDims) with(operation, all, i, make(x.dtype, more), "one more axis");
      with(operation, all, i, make(x.dtype == Dtype::F32 ? Dtype::I32 : Dtype::F32, x.shape),
           "another dtype");
      if (!o.may_be_null) with(operation, all, i, {}, "null");
    }
    numbers(operation, all);
  }

  /// Below the least, and above what limits it.
  void numbers(const Operation& operation, const Operands& right) {
    const Declaration& d = operation.declared;
    for (size_t i = 0; i < d.numbers.count; ++i) {
      const declared::Number& n = d.numbers.items[i];
      std::vector<int64_t> wrong{n.low - 1};
      if (n.high != declared::kNone) wrong.push_back(extent(d.op, declared::kLetters[n.high]) + 1);
      for (const int64_t value : wrong) {
        Operands operands = right;
        operands.numbers[i] = value;
        EXPECT_THROW(operation.run(operands), CheckError) << d.op << ": " << n.name << value;
      }
    }
  }

  std::map<std::string, std::string> accepted;  ///< by operation

 private:
  Fp8Scale scale_;
};

/// What is legal: an extent that nothing else has, one more axis of rows, which are counted only as
/// a product, and `row`, of which products of experts need nothing.
const std::map<std::string, std::string> kLegal = {
    {"adafactor_update", "grad one more axis"},
    {"adamw8bit_update", "param one more axis, grad one more axis"},
    {"adaptive_clip", "grad axis 1"},
    {"attention_cached", "cache axis 0"},
    {"bias_backward", "dout axis 0, dout axis 1"},
    {"unpermute_backward", "offsets axis 0"},
    {"unpermute_forward", "offsets axis 0"},
    {"copy_columns", "to axis 2, from axis 2"},
    {"embed_backward", "dwte axis 0, dwpe axis 0"},
    {"embed_forward", "wte axis 0, wpe axis 0"},
    {"expert_rows", "offsets axis 0, from axis 0"},
    {"gather_rows", "offsets axis 0, row axis 2"},
    {"grouped_matmul_backward_input", "row axis 0, row axis 1, row axis 2"},
    {"grouped_matmul_backward_weight", "row axis 0, row axis 1, row axis 2"},
    {"grouped_matmul_forward", "row axis 0, row axis 1, row axis 2"},
    {"matmul_backward_input", "dinp one more axis, dout one more axis"},
    {"matmul_forward", "out one more axis, inp one more axis"},
    {"rope", "qkv axis 0, qkv axis 1, angles axis 0"},
    {"scale", "x axis 0, x axis 1, x one more axis"},
    {"softmax_max", "logits axis 2"},
    {"softmax_sum", "logits axis 2"},
    {"squared_norm", "x axis 1"},
};

TEST_F(Refused, OperandsThatDoNotFit) {
  for (const Operation& operation : operations()) {
    mistakes(operation);
    dut().clear();
  }
  EXPECT_EQ(accepted, kLegal);
}

const std::map<std::string, std::string> kLegalNarrow = {
    {"attention_finish", "out BF16"},
    {"bias_backward", "dout BF16"},
    {"cast", "out BF16, inp BF16"},
    {"unpermute_forward", "y BF16"},
    {"copy_columns", "to BF16, from BF16"},
    {"embed_backward", "dout BF16"},
    {"rope", "qkv BF16"},
    {"scale", "x BF16"},
    {"softmax_max", "logits BF16"},
    {"softmax_sum", "logits BF16"},
};

TEST_F(Refused, NarrowOperandsBesideFp32) {
  if (k.name == std::string("ref")) GTEST_SKIP() << "ref widens all that is narrow, and then looks";
  for (const Operation& operation : operations()) {
    narrow_operands(operation);
    dut().clear();
  }
  EXPECT_EQ(accepted, kLegalNarrow);
}

}  // namespace
}  // namespace ladder::test
