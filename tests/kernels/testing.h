// What the tests of kernels share: tensors filled from a fixed seed, and two comparisons.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <string>

#include <gtest/gtest.h>

#include "kernels/arena.h"
#include "kernels/kernels.h"
#include "kernels/narrow.h"

namespace ladder::test {

/// Bits of element i of a narrow tensor.
inline uint32_t code_at(const Tensor& x, int64_t i) {
  return size_of(x.dtype) == 2 ? static_cast<const uint16_t*>(x.ptr)[i]
                               : static_cast<const uint8_t*>(x.ptr)[i];
}
inline void set_code(const Tensor& x, int64_t i, uint32_t code) {
  if (size_of(x.dtype) == 2)
    static_cast<uint16_t*>(x.ptr)[i] = static_cast<uint16_t>(code);
  else
    static_cast<uint8_t*>(x.ptr)[i] = static_cast<uint8_t>(code);
}
inline float scale_of(const Tensor& x) { return x.fp8 ? x.fp8->scale : 1.0F; }

/// Element i of a tensor of any floating dtype.
inline double at(const Tensor& x, int64_t i) {
  if (is_narrow(x.dtype)) return widen(format_of(x.dtype), code_at(x, i)) / scale_of(x);
  return x.dtype == Dtype::F64 ? x.data<double>()[i] : x.data<float>()[i];
}
inline void set(const Tensor& x, int64_t i, double value) {
  const auto single = static_cast<float>(value);
  if (is_narrow(x.dtype))
    set_code(x, i, narrow(format_of(x.dtype), single * scale_of(x), overflow_of(x.dtype)));
  else if (x.dtype == Dtype::F64)
    x.data<double>()[i] = value;
  else
    x.data<float>()[i] = single;
}

/// A Ctx for one table, and memory for tensors of one floating dtype.
class Sandbox {
 public:
  explicit Sandbox(const Kernels& kernels, Dtype real = Dtype::F32) : real_(real) {
    ctx_.kernels = &kernels;
    set_threads(1);
  }

  const Ctx& ctx() const { return ctx_; }
  const Kernels& kernels() const { return *ctx_.kernels; }
  void set_threads(int threads) {
    if (ctx_.scratch) arena_.release(ctx_.scratch);
    ctx_.threads = threads;
    ctx_.scratch =
        arena_.alloc(Mem::Workspace, "scratch", Dtype::U8, {threads, kernels().scratch_bytes});
  }

  /// NaN until written.
  Tensor empty(Shape shape) { return empty(real_, shape); }
  Tensor empty(Dtype dtype, Shape shape) {
    return arena_.alloc(Mem::Activation, "empty", dtype, shape);
  }

  Tensor filled(Shape shape, double value) { return filled(real_, shape, value); }
  Tensor filled(Dtype dtype, Shape shape, double value) {
    const Tensor x = empty(dtype, shape);
    for (int64_t i = 0, n = x.size(); i < n; ++i) set(x, i, value);
    return x;
  }

  /// Every byte zero: limbs, codes, optimizer states at the start.
  Tensor zeros(Dtype dtype, Shape shape) {
    const Tensor x = arena_.alloc(Mem::Activation, "zeros", dtype, shape);
    std::memset(x.ptr, 0, static_cast<size_t>(x.bytes()));
    return x;
  }

  /// Uniform in [low, high), rounded to the dtype.
  Tensor random(Shape shape, double low = -1, double high = 1) {
    return random(real_, shape, low, high);
  }
  Tensor random(Dtype dtype, Shape shape, double low = -1, double high = 1) {
    const Tensor x = empty(dtype, shape);
    for (int64_t i = 0, n = x.size(); i < n; ++i) set(x, i, low + (high - low) * uniform());
    return x;
  }

  /// I32, each in [0, V).
  Tensor tokens(Shape shape, int64_t V) {
    const Tensor x = arena_.alloc(Mem::Activation, "tokens", Dtype::I32, shape);
    for (int64_t i = 0; i < x.size(); ++i)
      x.data<int32_t>()[i] = static_cast<int32_t>(uniform() * static_cast<double>(V));
    return x;
  }

  /// F32: row t has the cosines of t theta^(-2i/HS), i < HS/2, then the sines: as rope reads them.
  Tensor angles(int64_t P, int64_t HS, double theta = 1e4) {
    const Tensor x = empty(Dtype::F32, {P, HS});
    for (int64_t i = 0; i < P * HS / 2; ++i) {
      const int64_t t = i / (HS / 2), pair = i % (HS / 2);
      const double power = -2 * static_cast<double>(pair) / static_cast<double>(HS);
      const double angle = static_cast<double>(t) * std::pow(theta, power);
      set(x, t * HS + pair, std::cos(angle));
      set(x, t * HS + HS / 2 + pair, std::sin(angle));
    }
    return x;
  }

  Tensor copy(const Tensor& x) {
    const Tensor y = arena_.alloc(Mem::Activation, "copy", x.dtype, x.shape);
    std::memcpy(y.ptr, x.ptr, static_cast<size_t>(x.bytes()));
    return y;
  }

 private:
  // The engine's output is fixed by the standard, unlike that of the distributions.
  double uniform() { return static_cast<double>(engine_() >> 11) * 0x1p-53; }

  Arena arena_;
  Dtype real_;
  Ctx ctx_;
  std::mt19937_64 engine_{20240607};
};

/// A test of `ref` in double.
class RefInDouble : public ::testing::Test {
 protected:
  Sandbox box{ref_kernels(), Dtype::F64};
  const Kernels& k = ref_kernels();
  const Ctx& ctx = box.ctx();
};

/// Makes random numbers differ in size. Sums of numbers of one size and few bits would be exact,
/// and so the same in any order.
inline Tensor spread(const Tensor& x) {
  for (int64_t i = 0; i < x.size(); ++i)
    set(x, i, std::ldexp(at(x, i), static_cast<int>(i % 23) - 10));
  return x;
}
inline Tensor spread(Sandbox& box, const Shape& shape) { return spread(box.random(shape, -4, 4)); }

inline bool is_minus_zero(double x) { return x == 0 && std::signbit(x); }

/// Step t of Adam from 1 on.
inline AdamStep adam_step(int t, bool decoupled) {
  return {.lr = 0.1F,
          .beta1 = 0.9F,
          .beta2 = 0.95F,
          .eps = 1e-8F,
          .weight_decay = 0.1F,
          .decoupled = decoupled,
          .correction1 = 1 - std::pow(0.9F, static_cast<float>(t)),
          .correction2 = 1 - std::pow(0.95F, static_cast<float>(t))};
}

/// What a rank has of a loss if ranks share the vocabulary.
struct VocabularyPart {
  int64_t vocab;  ///< columns that are no padding
  Tensor logits, targets;
};
/// Columns [begin, begin + V) of logits (B,T,..), whose first `vocab` columns are no padding.
inline VocabularyPart part_of(Sandbox& box, const Tensor& logits, const Tensor& targets,
                              int64_t vocab, int64_t begin, int64_t V) {
  const VocabularyPart part{.vocab = std::clamp<int64_t>(vocab - begin, 0, V),
                            .logits = box.empty(logits.dtype, {logits.dim(0), logits.dim(1), V}),
                            .targets = box.copy(targets)};
  for (int64_t i = 0; i < part.logits.size(); ++i)
    set(part.logits, i, at(logits, i / V * logits.dim(2) + begin + i % V));
  for (int64_t i = 0; i < targets.size(); ++i) {
    int32_t& target = part.targets.data<int32_t>()[i];
    const bool here = target >= begin && target < begin + V;
    if (target != kIgnore) target = here ? target - static_cast<int32_t>(begin) : kElsewhere;
  }
  return part;
}

/// `call` must be refused with words that contain `says`.
template <class F>
void expect_refused(const std::string& says, const F& call) {
  try {
    call();
    ADD_FAILURE() << "not refused: " << says;
  } catch (const CheckError& error) {
    EXPECT_NE(std::string(error.what()).find(says), std::string::npos) << error.what();
  }
}

/// |x|, in double.
inline double norm(const Tensor& x) {
  double sum = 0;
  for (int64_t i = 0; i < x.size(); ++i) sum += at(x, i) * at(x, i);
  return std::sqrt(sum);
}

/// |got - want| / |want| over all elements; infinite if anything is NaN.
inline double relative_error(const Tensor& got, const Tensor& want) {
  if (!(got.shape == want.shape)) return std::numeric_limits<double>::infinity();
  double difference = 0, length = 0;
  for (int64_t i = 0; i < got.size(); ++i) {
    difference += std::pow(at(got, i) - at(want, i), 2);
    length += std::pow(at(want, i), 2);
  }
  const double error = std::sqrt(difference / (length > 0 ? length : 1));
  return std::isnan(error) ? std::numeric_limits<double>::infinity() : error;
}

/// For tests whose parameter is a format of activations.
inline std::string dtype_name(const ::testing::TestParamInfo<Dtype>& info) {
  switch (info.param) {
    case Dtype::F32: return "F32";
    case Dtype::BF16: return "BF16";
    case Dtype::F16: return "F16";
    default: return std::to_string(info.index);
  }
}

/// EXPECT_TRUE(same_bits(a, b)): equal shape, dtype and bytes; says where they first differ.
inline ::testing::AssertionResult same_bits(const Tensor& a, const Tensor& b) {
  if (a.dtype != b.dtype || !(a.shape == b.shape))
    return ::testing::AssertionFailure() << to_string(a.shape) << " and " << to_string(b.shape);
  const auto *x = static_cast<const char*>(a.ptr), *y = static_cast<const char*>(b.ptr);
  const int64_t bytes = a.bytes();
  for (int64_t i = 0; i < bytes; ++i)
    if (x[i] != y[i])
      return ::testing::AssertionFailure()
             << "element " << i / size_of(a.dtype) << " of " << to_string(a.shape) << " differs";
  return ::testing::AssertionSuccess();
}

}  // namespace ladder::test
