#include "common/comm/elements.h"

#include <cmath>
#include <cstring>

#include "kernels/narrow.h"

namespace ladder {
namespace {

template <class T>
T one_of(T a, T b, Combine combine) {
  if constexpr (std::is_integral_v<T>) {
    // Modulo 2^n, as sums of hashes need it.
    using U = std::make_unsigned_t<T>;
    if (combine == Combine::Sum) return static_cast<T>(static_cast<U>(a) + static_cast<U>(b));
  }
  if (combine == Combine::Sum) return static_cast<T>(a + b);
  if constexpr (std::is_floating_point_v<T>) {
    if (std::isnan(b)) return b;
  }
  return b > a ? b : a;
}

template <class Narrow>
requires requires { Narrow::kFormat; }
Narrow one_of(Narrow a, Narrow b, Combine combine) {
  const float one = one_of(value_of(a), value_of(b), combine);
  return {static_cast<uint16_t>(narrow(Narrow::kFormat, one, Overflow::ToInfinity))};
}

template <class T>
void combine_all(const Tensor& into, const Tensor& other, Combine combine) {
  T* x = into.data<T>();
  const T* y = other.data<T>();
  for (int64_t i = 0; i < into.size(); ++i) x[i] = one_of(x[i], y[i], combine);
}

}  // namespace

void copy_elements(Tensor out, Tensor inp, Device* device) {
  CHECK(out.bytes() == inp.bytes(), "{} bytes copied to {}", inp.bytes(), out.bytes());
  if (out.bytes() == 0 || out.ptr == inp.ptr) return;
  if (out.place != Place::Device && inp.place != Place::Device) {
    std::memcpy(out.ptr, inp.ptr, static_cast<size_t>(out.bytes()));
    return;
  }
  CHECK(device, "tensors of a device, and no device to copy them");
  device->copy(out.ptr, inp.ptr, out.bytes());
  device->synchronize();
}

void combine_elements(Tensor into, Tensor other, Combine combine) {
  CHECK(into.size() == other.size(), "{} elements and {}", into.size(), other.size());
  switch (into.dtype) {
    case Dtype::F32: return combine_all<float>(into, other, combine);
    case Dtype::F64: return combine_all<double>(into, other, combine);
    case Dtype::I32: return combine_all<int32_t>(into, other, combine);
    case Dtype::I64: return combine_all<int64_t>(into, other, combine);
    case Dtype::U8: return combine_all<uint8_t>(into, other, combine);
    case Dtype::BF16: return combine_all<Bf16>(into, other, combine);
    case Dtype::F16: return combine_all<F16>(into, other, combine);
    default: CHECK(false, "{} elements are not combined", dtype_text(into.dtype));
  }
}

}  // namespace ladder
