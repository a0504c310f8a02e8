// What kernels/operations.inc declares, parsed when the program is compiled.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>
#include <string_view>

#include "kernels/tensor.h"

namespace ladder::declared {

/// The letters of extents: two constants, and the members of Extents in their order.
inline constexpr std::string_view kLetters[] = {"1", "kLimbs", "B", "T",  "C",   "V",  "P",  "R",
                                                "N", "K",      "F", "NH", "NKV", "HS", "Tq", "Tk",
                                                "E", "k",      "M", "G",  "D",   "Q"};
using Letter = int8_t;
constexpr Letter kOne = 0, kFirstLetter = 2, kNone = -1;

/// count * letter
struct Term {
  int64_t count = 0;
  Letter letter = kOne;
};

/// An extent: (a + b) * times. It must be at least `least`.
struct Extent {
  Term a, b;
  Letter times = kOne, least = kNone;

  constexpr bool is_letter() const { return a.count == 1 && b.count == 0 && times == kOne; }
  constexpr int letters() const {
    return (a.letter >= kFirstLetter) + (b.letter >= kFirstLetter) + (times >= kFirstLetter);
  }
};

/// Which dtypes a tensor may have. Exact: one only.
enum class Kind : uint8_t { Activation, Factor, Wide, Float, Either, Fp8, Any, Exact };

/// What a tensor must be.
struct Operand {
  std::string_view name, shape;
  Kind kind = Kind::Activation;
  Dtype exact = Dtype::F32;
  bool may_be_null = false;
  Letter product = kNone;     ///< if there are extents before the named ones: their product
  bool same_leading = false;  ///< they are themselves the same: `..`, not `R..`
  int rank = 0;               ///< of the named extents
};

/// An extent of an operand. `axis` counts from the last: -1, -2, ...
struct Axis {
  int operand = 0, axis = 0;
  Extent extent;
};

/// A number from `low` on, up to `high` if that is not kNone. If its name is a letter (NH, T), it
/// gives the letter its value.
struct Number {
  std::string_view name, range;
  int64_t low = 0;
  Letter letter = kNone, high = kNone;
};

/// `part` is at least 1, and `whole` is a multiple of it.
struct Divisor {
  Term part;
  Letter whole = kNone;
};

/// Up to `Most` items.
template <class T, size_t Most>
struct List {
  std::array<T, Most> items{};
  size_t count = 0;

  constexpr void add(const T& item) { items[count++] = item; }
  constexpr const T* begin() const { return items.data(); }
  constexpr const T* end() const { return items.data() + count; }
};

/// What one line of operations.inc says.
struct Declaration {
  std::string_view op;
  List<Operand, 9> operands;
  List<Axis, 32> axes;  ///< those of one letter first: the others follow from them
  List<Number, 3> numbers;
  List<Divisor, 2> divisors;
  bool has_least = false;  ///< an extent must be at least another
  size_t leader = 0;       ///< the operand that has the dtype of activations
};

/// Reads one declaration. What it does not understand does not compile.
class Parser {
 public:
  constexpr Parser(std::string_view op, std::string_view text) : text_(text) {
    all_.op = op;
    while (!text_.empty()) {
      item();
      take(" ");
    }
    for (int letters = 0; letters <= 3; ++letters)
      for (const Axis& axis : axes_)
        if (axis.extent.letters() == letters) all_.axes.add(axis);
    // The first Activation that cannot be null; if there is none, the first Factor, and so on.
    for (const Kind kind : {Kind::Float, Kind::Wide, Kind::Factor, Kind::Activation})
      for (size_t i = all_.operands.count; i-- > 0;)
        if (all_.operands.items[i].kind == kind && !all_.operands.items[i].may_be_null)
          all_.leader = i;
  }
  constexpr Declaration declaration() const { return all_; }

 private:
  constexpr bool take(std::string_view what) {
    if (!text_.starts_with(what)) return false;
    text_.remove_prefix(what.size());
    return true;
  }
  constexpr void expect(std::string_view what) {
    if (!take(what)) throw CheckError("a declaration lacks a sign");
  }
  constexpr std::string_view word() {
    const auto* end = std::ranges::find_if_not(text_, [](char c) {
      return c == '_' || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    });
    const std::string_view found(text_.begin(), end);
    text_.remove_prefix(found.size());
    return found;
  }
  static constexpr Letter letter(std::string_view name) {
    const auto* found = std::ranges::find(kLetters, name);
    return found == std::end(kLetters) ? kNone : static_cast<Letter>(found - kLetters);
  }
  constexpr Letter letter() {
    const Letter found = letter(word());
    if (found == kNone) throw CheckError("a declaration has an unknown letter");
    return found;
  }
  constexpr Term term() {
    if (text_[0] < '0' || text_[0] > '9') return {1, letter()};
    const int64_t count = word()[0] - '0';
    return {count, take("*") ? letter() : kOne};
  }
  constexpr Extent extent() {
    Extent e;
    const bool sum = take("(");
    e.a = term();
    if (!sum && take("*")) e.times = letter();
    if (take("+")) e.b = term();
    if (sum) {
      expect(")*");
      e.times = letter();
    }
    if (take(">=")) {
      e.least = letter();
      all_.has_least = true;
    }
    return e;
  }

  constexpr void item() {
    if (text_ == "rows" || text_.starts_with("rows ")) {
      take("rows");
      for (const std::string_view one : {"offsets(E+1):I32", "row(B,T,k):I32", "from(M):I32"}) {
        const std::string_view rest = text_;
        text_ = one;
        item();
        text_ = rest;
      }
      return;
    }
    const std::string_view start = text_;
    if (text_[0] >= '0' && text_[0] <= '9') return divisor();
    const std::string_view name = word();
    if (text_[0] == '[') return number(name);
    if (text_[0] != '|') return operand(name);
    text_ = start;
    divisor();
  }
  constexpr void divisor() {
    Divisor d{.part = term()};
    expect("|");
    d.whole = letter();
    all_.divisors.add(d);
  }
  constexpr void number(std::string_view name) {
    Number n{.name = name, .range = text_.substr(0, text_.find(']') + 1), .letter = letter(name)};
    expect("[");
    n.low = word()[0] - '0';
    expect("..");
    if (text_[0] != ']') n.high = letter();
    expect("]");
    all_.numbers.add(n);
  }
  constexpr void operand(std::string_view name) {
    Operand o;
    o.name = name;
    o.may_be_null = take("?");
    std::array<Extent, kMaxDims> extents{};
    const std::string_view start = text_;
    expect("(");
    if (const size_t dots = text_.find(".."); dots <= 1) {
      o.same_leading = dots == 0;
      o.product = o.same_leading ? letter("R") : letter();
      expect("..");
    }
    while (!take(")")) {
      take(",");
      extents[static_cast<size_t>(o.rank++)] = extent();
    }
    o.shape = start.substr(0, start.size() - text_.size());
    if (take(":")) kind(o, word());
    for (int i = 0; i < o.rank; ++i)
      axes_.add({.operand = static_cast<int>(all_.operands.count),
                 .axis = i - o.rank,
                 .extent = extents[static_cast<size_t>(i)]});
    all_.operands.add(o);
  }
  static constexpr void kind(Operand& o, std::string_view name) {
    // As in Kind, after Activation. Another name, as I32, comes out as Kind::Exact, the last.
    constexpr std::string_view kNames[] = {"factor", "wide", "float", "either", "FP8", "any"};
    const auto* found = std::ranges::find(kNames, name);
    o.kind = static_cast<Kind>(found - kNames + 1);
    if (o.kind != Kind::Exact) return;
    for (const Dtype dtype : {Dtype::F32, Dtype::I32, Dtype::I64, Dtype::U8})
      if (dtype_text(dtype) == name) return void(o.exact = dtype);
    throw CheckError("a declaration has an unknown dtype");
  }

  std::string_view text_;
  List<Axis, 32> axes_;
  Declaration all_;
};

}  // namespace ladder::declared
