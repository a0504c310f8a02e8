// What every file of ref/ needs: to choose float or double at run time, and to store a finished
// sum.
#pragma once

#include "kernels/kernels.h"
#include "kernels/tensor.h"

namespace ladder::ref {

/// Calls f(Real{}), where Real is the type of the tensor's elements: float or double.
///     dispatch(inp, [&]<class Real>(Real) { gelu<Real>(out.data<Real>(), ...); });
template <class F>
void dispatch(const Tensor& tensor, F&& f) {
  switch (tensor.dtype) {
    case Dtype::F32: return f(float{});
    case Dtype::F64: return f(double{});
    default: CHECK(false, "ref computes in float or double");
  }
}

/// Gives the finished sum of a call to a parameter gradient.
template <class Real>
void store(Real& gradient, Real sum, Into into) {
  gradient = into == Into::Add ? gradient + sum : sum;
}

}  // namespace ladder::ref
