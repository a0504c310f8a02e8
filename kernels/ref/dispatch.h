// What every file of ref/ needs: choose float or double at run time, store a finished sum.
#pragma once

#include "kernels/kernels.h"
#include "kernels/tensor.h"

namespace ladder::ref {

/// Calls f(Real{}) with the type of the tensor's elements: float or double.
///     dispatch(inp, [&]<class Real>(Real) { gelu<Real>(out.data<Real>(), ...); });
template <class F>
void dispatch(const Tensor& tensor, F&& f) {
  switch (tensor.dtype) {
    case Dtype::F32: return f(float{});
    case Dtype::F64: return f(double{});
    default: CHECK(false, "ref computes in float or double");
  }
}

/// A parameter gradient takes the finished sum of a call.
template <class Real>
void store(Real& gradient, Real sum, Into into) {
  gradient = into == Into::Add ? gradient + sum : sum;
}

}  // namespace ladder::ref
