#include "kernels/shapes.h"

#include <bit>

#include "kernels/attention_rows.h"
#include "kernels/declaration.h"
#include "kernels/documents.h"
#include "kernels/narrow.h"

namespace ladder {
namespace {

using namespace declared;

constexpr Declaration kDeclarations[] = {
#define LADDER_OPERATION(op, operands) Parser(#op, operands).declaration(),
#include "kernels/operations.inc"
};

constexpr size_t kLetterCount = std::size(kLetters);
static_assert(sizeof(Extents) == (kLetterCount - kFirstLetter) * sizeof(int64_t));

constexpr bool is_float(Dtype dtype) {
  return dtype == Dtype::F32 || dtype == Dtype::F64 || (is_narrow(dtype) && !is_fp8(dtype));
}

/// Holds the operands of one call to the declaration of its operation.
class Binding {
 public:
  Binding(const Declaration& declaration, const Arguments& given)
      : all_(declaration), given_(given) {
    values_[kOne] = 1;
    values_[1] = kLimbs;
  }

  Extents bind() {
    CHECK(static_cast<size_t>(given_.tensor_count) == all_.operands.count &&
              static_cast<size_t>(given_.number_count) == all_.numbers.count,
          "{}: {} tensors and {} numbers, not {} and {}", all_.op, given_.tensor_count,
          given_.number_count, all_.operands.count, all_.numbers.count);
    find_activations();
    for (size_t i = 0; i < all_.operands.count; ++i)
      if (tensor(i))
        check_operand(i);
      else if (!operand(i).may_be_null)
        refuse(fmt::format("{} is null", operand(i).name));
    for (const Number& number : all_.numbers) {
      const auto i = static_cast<size_t>(&number - all_.numbers.begin());
      if (number.letter != kNone) bind(number.letter, given_.numbers[i], kNobody);
    }
    for (const Axis& axis : all_.axes) {
      const auto i = static_cast<size_t>(axis.operand);
      if (!tensor(i)) continue;
      const Shape& shape = tensor(i).shape;
      const int64_t n = shape.dims[static_cast<size_t>(shape.rank + axis.axis)];
      const Extent& e = axis.extent;
      if (!(e.is_letter() ? bind(e.a.letter, n, axis.operand) : solve(e, n, axis.operand)))
        refuse_shape(i);
    }
    if (all_.has_least) check_least();
    check_numbers();
    for (const Divisor& divisor : all_.divisors) check_divisor(divisor);
    return extents();
  }

 private:
  static constexpr int kNobody = -1;

  const Tensor& tensor(size_t i) const { return *given_.tensors[i]; }
  const Operand& operand(size_t i) const { return all_.operands.items[i]; }
  int64_t& value(Letter letter) { return values_[static_cast<size_t>(letter)]; }
  bool is_bound(Letter letter) const { return bound_ >> letter & 1; }

  Extents extents() const {
    std::array<int64_t, kLetterCount - kFirstLetter> letters;
    std::copy_n(values_.begin() + kFirstLetter, letters.size(), letters.begin());
    return std::bit_cast<Extents>(letters);
  }

  /// An FP8 factor does not tell which 16-bit dtype activations have, so another factor does. If
  /// all are FP8, either dtype fits.
  void find_activations() {
    leader_ = all_.leader;
    const Kind kind = operand(leader_).kind;
    while (leader_ < all_.operands.count && kind == Kind::Factor &&
           (operand(leader_).kind != kind || is_fp8(tensor(leader_).dtype)))
      ++leader_;
    activations_ = leader_ < all_.operands.count ? tensor(leader_).dtype : Dtype::BF16;
    if (operand(all_.leader).kind != Kind::Exact && !is_float(activations_))
      refuse(fmt::format("{} is {}, must be F32, BF16 or F16", operand(leader_).name,
                         dtype_text(activations_)));
  }

  void check_operand(size_t i) {
    const Operand& o = operand(i);
    const Tensor& x = tensor(i);
    if (!fits(o, x.dtype)) refuse_dtype(i);
    if (is_fp8(x.dtype)) check_scale(o, x);
    const int more = x.shape.rank - o.rank;
    if (more < 0 || (more > 0 && o.product == kNone)) refuse_shape(i);
    if (o.product == kNone) return;
    Shape leading = x.shape;
    leading.rank = more;
    const bool same = bind(o.product, leading.size(), static_cast<int>(i));
    if (leading_of_ == kNobody) {
      leading_of_ = static_cast<int>(i);
      leading_ = leading;
    }
    if (!same || (o.same_leading && !(leading == leading_))) refuse_shape(i);
  }

  bool fits(const Operand& o, Dtype dtype) const {
    switch (o.kind) {
      case Kind::Activation: return dtype == activations_;
      case Kind::Factor: return is_fp8(dtype) ? is_narrow(activations_) : dtype == activations_;
      case Kind::Wide: return dtype == wide(activations_);
      case Kind::Float: return is_float(dtype) && wide(dtype) == wide(activations_);
      case Kind::Either: return dtype == activations_ || dtype == wide(activations_);
      case Kind::Fp8: return is_fp8(dtype);
      case Kind::Any: return is_narrow(dtype) || dtype == Dtype::F32;
      case Kind::Exact: return dtype == o.exact;
    }
    return false;
  }

  /// A product may not overflow by its scales; a cast takes any scale.
  void check_scale(const Operand& o, const Tensor& x) const {
    if (!x.fp8) refuse(fmt::format("{} is FP8 without a scale", o.name));
    const float scale = x.fp8->scale;
    if (o.kind == Kind::Factor && !(scale >= 1 / kMaxFp8Scale && scale <= kMaxFp8Scale))
      refuse(fmt::format("{} has a scale of {}, must be from {} to {}", o.name, scale,
                         1 / kMaxFp8Scale, kMaxFp8Scale));
  }

  /// Gives the letter its value, if it has none. Otherwise the value must be this extent. `from` is
  /// the operand that has the extent, or kNobody for a number.
  bool bind(Letter letter, int64_t extent, int from) {
    if (is_bound(letter)) return value(letter) == extent;
    bound_ |= 1U << letter;
    value(letter) = extent;
    owners_[static_cast<size_t>(letter)] = static_cast<int8_t>(from);
    return true;
  }

  /// (a + b) times = extent, of which at most one letter is unknown.
  bool solve(const Extent& e, int64_t extent, int from) {
    const int64_t times = value(e.times), b = e.b.count == 0 ? 0 : value(e.b.letter);
    if (!is_bound(e.times)) {
      const int64_t sum = e.a.count * value(e.a.letter) + e.b.count * b;
      return sum > 0 && extent % sum == 0 && bind(e.times, extent / sum, from);
    }
    if (times <= 0 || extent % times != 0) return false;
    const auto rest = [&](const Term& known, const Term& unknown) {
      const int64_t n = extent / times - known.count * (known.count == 0 ? 0 : value(known.letter));
      return n >= 0 && n % unknown.count == 0 && bind(unknown.letter, n / unknown.count, from);
    };
    return is_bound(e.b.letter) ? rest(e.b, e.a) : rest(e.a, e.b);
  }

  void check_least() {
    for (const Axis& axis : all_.axes) {
      const auto i = static_cast<size_t>(axis.operand);
      const Extent& e = axis.extent;
      if (e.least != kNone && tensor(i) && value(e.a.letter) < value(e.least)) refuse_shape(i);
    }
  }

  void check_numbers() {
    for (const Number& number : all_.numbers) {
      const int64_t n = given_.numbers[static_cast<size_t>(&number - all_.numbers.begin())];
      if (n < number.low || (number.high != kNone && n > value(number.high)))
        refuse(fmt::format("{} is {}, must be in {}{}", number.name, n, number.range,
                           with(number.range, kNobody)));
    }
  }

  void check_divisor(const Divisor& d) {
    const int64_t part = d.part.count * value(d.part.letter), whole = value(d.whole);
    if (part >= 1 && whole % part == 0) return;
    const auto named = [&](const Term& term) {
      return term.letter == kOne ? fmt::format("{}", term.count) : bound_text(term.letter);
    };
    refuse(fmt::format("{} must divide {}", named(d.part), bound_text(d.whole)));
  }

  /// "C = 64 of inp"
  std::string bound_text(Letter letter) {
    const int owner = owners_[static_cast<size_t>(letter)];
    const std::string of =
        owner == kNobody ? "" : fmt::format(" of {}", operand(static_cast<size_t>(owner)).name);
    return fmt::format("{} = {}{}", kLetters[static_cast<size_t>(letter)], value(letter), of);
  }

  /// " with C = 64 of inp": the letters in `text` that other operands have determined.
  std::string with(std::string_view text, int self) {
    std::string all;
    const auto add = [&](const std::string& one) { all += (all.empty() ? " with " : ", ") + one; };
    if (text.starts_with("(..") && leading_of_ != self && leading_of_ != kNobody)
      add(fmt::format(".. = {} of {}", to_string(leading_),
                      operand(static_cast<size_t>(leading_of_)).name));
    for (size_t at = 0; at < text.size();) {
      size_t end = at;
      while (end < text.size() && std::isalpha(static_cast<unsigned char>(text[end]))) ++end;
      const auto* found = std::ranges::find(kLetters, text.substr(at, end - at));
      if (found != std::end(kLetters)) {
        const auto letter = static_cast<Letter>(found - kLetters);
        if (letter >= kFirstLetter && is_bound(letter) &&
            (owners_[static_cast<size_t>(letter)] != self || self == kNobody))
          add(bound_text(letter));
      }
      at = std::max(end, at + 1);
    }
    return all;
  }

  [[noreturn]] void refuse(const std::string& why) const {
    throw CheckError(fmt::format("{}: {}", all_.op, why));
  }
  [[noreturn]] void refuse_shape(size_t i) {
    const Operand& o = operand(i);
    refuse(fmt::format("{} is {}, must be {}{}", o.name, to_string(tensor(i).shape), o.shape,
                       with(o.shape, static_cast<int>(i))));
  }
  [[noreturn]] void refuse_dtype(size_t i) const {
    const Operand& o = operand(i);
    const std::string_view act = dtype_text(activations_), f32 = dtype_text(wide(activations_));
    const auto legal = [&]() -> std::string {
      switch (o.kind) {
        case Kind::Activation: return std::string(act);
        case Kind::Factor: return fmt::format("{} or FP8 beside 16 bits", act);
        case Kind::Wide: return std::string(f32);
        case Kind::Float: return f32 == "F64" ? "F64" : "F32, BF16 or F16";
        case Kind::Either: return fmt::format("{} or {}", act, f32);
        case Kind::Fp8: return "FP8";
        case Kind::Any: return "F32, BF16, F16 or FP8";
        case Kind::Exact: return std::string(dtype_text(o.exact));
      }
      return "";
    };
    // Whether what is legal does not depend on another operand.
    const bool free = o.kind >= Kind::Fp8 || leader_ == i || leader_ >= all_.operands.count;
    refuse(fmt::format("{} is {}, must be {}{}", o.name, dtype_text(tensor(i).dtype), legal(),
                       free ? "" : fmt::format(" beside {} ({})", operand(leader_).name, act)));
  }

  const Declaration& all_;
  const Arguments& given_;
  std::array<int64_t, kLetterCount> values_{};
  uint32_t bound_ = (1U << kFirstLetter) - 1;  ///< a bit for each letter that has a value
  std::array<int8_t, kLetterCount> owners_;    ///< the operand that gave a letter its value
  Shape leading_;
  int leading_of_ = kNobody;  ///< the operand that has the extents `leading_`, for `..`
  size_t leader_ = 0;
  Dtype activations_ = Dtype::F32;
};

/// Tokens [begin, begin + count) of T must be whole chunks of the sequence.
void check_chunks(std::string_view op, const char* name, int64_t begin, int64_t count, int64_t T) {
  const Range range{begin, begin + count};
  const auto at_chunk = [&](int64_t token) {
    const int64_t chunks = key_chunks(T);
    for (int64_t i = 0; i <= chunks; ++i)
      if (leaf(i, chunks, T).begin == token) return true;
    return false;
  };
  CHECK(begin >= 0 && range.end <= T && at_chunk(range.begin) && at_chunk(range.end),
        "{}: {} of tokens {} to {} of {}; legal are whole chunks, of which there are {}", op, name,
        range.begin, range.end, T, key_chunks(T));
}

/// What no letter can say.
void check_more(Op op, const Arguments& given, const Extents& s) {
  const std::string_view name = kDeclarations[static_cast<size_t>(op)].op;
  const auto& numbers = given.numbers;
  switch (op) {
    case Op::expert_rows: {
      const int64_t E = given.tensors[0]->size() - 1, most = s.B * s.T * s.k, capacity = numbers[0];
      const int64_t needed =
          capacity == 0 ? most : std::min(most, s.B * E * std::min(capacity, s.T * s.k));
      CHECK(s.M >= needed, "{}: room for {} rows, not {}", name, s.M, needed);
      return;
    }
    case Op::attention_piece_forward:
    case Op::attention_piece_backward:
      for (const TokenRun& run : query_runs(*given.place, s.Tq))
        check_chunks(name, "queries", run.tokens.begin, run.tokens.size(), given.place->T);
      return check_chunks(name, "keys", given.place->keys, s.Tk, given.place->T);
    case Op::attention_cached: {
      const int64_t known = numbers[1] + s.Tq;
      CHECK(s.Tq > 0 && known <= std::min(s.T, s.P), "{}: tokens {} to {} of {}, and a cache of {}",
            name, numbers[1], known, s.T, s.P);
      return;
    }
    case Op::copy_columns: {
      const auto [to, from, count] = numbers;
      CHECK(to + count <= s.N && from + count <= s.M, "{}: {} columns from {} of {} to {} of {}",
            name, count, from, s.M, to, s.N);
      return;
    }
    case Op::cross_entropy:
    case Op::softmax_loss: {
      const int64_t D = all_sequences_of(*given.ctx, s.B, s.T).count;
      CHECK(s.D == D, "{}: losses is ({}), must be ({}): one a sequence", name, s.D, D);
      return;
    }
    case Op::adafactor_update: {
      const bool matrix{*given.tensors[2]};
      const int rank = given.tensors[0]->shape.rank;
      CHECK(rank == (matrix ? 2 : 1), "{}: param of rank {} with{} col", name, rank,
            matrix ? "" : "out");
      CHECK(s.M == (matrix ? s.R : s.N), "{}: row is ({}), must be ({})", name, s.M,
            matrix ? s.R : s.N);
      return;
    }
    case Op::adamw8bit_update:
      CHECK(s.Q == ceil_div(s.N, kQuantBlock), "{}: scales are ({}), must be ({}) of {} elements",
            name, s.Q, ceil_div(s.N, kQuantBlock), s.N);
      return;
    default: return;
  }
}

}  // namespace

Extents check_shapes(Op op, const Arguments& given) {
  const Extents s = Binding(kDeclarations[static_cast<size_t>(op)], given).bind();
  check_more(op, given, s);
  return s;
}

}  // namespace ladder
