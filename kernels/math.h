// Elementary functions whose bits do not depend on the machine.
//
// The C library's functions differ between its versions, and one version chooses between several by
// the processor. The functions here are sums and products in a written order, so they have the same
// bits wherever arithmetic follows IEEE 754. sqrt is exact everywhere and needs no function here.
// The house test check_math finds calls of the library's functions in kernels/, common/ and
// chapters/.
//
// Errors are in units of the last place (ulp) of the result. Each is the largest that was
// found, over one float of 31 and 3 million doubles of each range, rounded up. A correctly rounded
// result is at most 0.5 ulp off. NaN gives NaN.
//
// The `cpu` table also has an exponential of whole vectors, in kernels/cpu/simd.h.
#pragma once

namespace ladder::math {

/// e^x: 0.9 ulp.
double exp(double x);
/// Natural logarithm: 1.0 ulp. -infinity at 0, NaN below.
double log(double x);
/// Hyperbolic tangent: 2.5 ulp.
double tanh(double x);
/// Sine and cosine of an angle in radians: 0.8 ulp. NaN where |x| > 2^20.
double sin(double x);
double cos(double x);
/// x^y = exp(y log x), x at least 0: 1 + 3 |y log x| ulp at most. NaN at 0^0.
double pow(double x, double y);

/// Computed in double, then rounded: at most 0.5 + 2^-27 ulp off, for any float.
inline float exp(float x) { return static_cast<float>(exp(static_cast<double>(x))); }
inline float log(float x) { return static_cast<float>(log(static_cast<double>(x))); }
inline float tanh(float x) { return static_cast<float>(tanh(static_cast<double>(x))); }

}  // namespace ladder::math
