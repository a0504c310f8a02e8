// FP8 in one short file: what E4M3 keeps of a number, a scale that is one step late and sometimes
// wrong, and why ranks must agree on it.
//
//   g++ -std=c++20 chapters/16_fp8/toy.cpp -o toy && ./toy

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

constexpr float kMax = 448;  // of E4M3: four binary digits (one is implied), exponents -6 to 8
using Values = std::array<float, 4>;

/// x as E4M3 stores it: to nearest, ties to even; what is too large becomes the largest.
float fp8(float x) {
  if (x == 0) return x;
  const int exponent = std::max(std::ilogb(x), -6);
  const float unit = std::ldexp(1.0F, exponent - 3);  // the distance of neighbors
  return std::clamp(std::nearbyint(x / unit) * unit, -kMax, kMax);
}

float largest(const Values& x) {
  float most = 0;
  for (const float v : x) most = std::max(most, std::fabs(v));
  return most;
}

/// The largest power of two that leaves values up to `amax` within range.
float scale_for(float amax) { return std::ldexp(1.0F, std::ilogb(kMax / amax)); }

/// What a product reads: stored times the scale, and divided by it again.
Values stored(const Values& x, float scale) {
  Values y;
  for (size_t i = 0; i < x.size(); ++i) y[i] = fp8(x[i] * scale) / scale;
  return y;
}

/// The largest relative error of a value: 0.5 is half of it, 1 is all of it (stored as 0).
float error(const Values& x, const Values& y) {
  float worst = 0;
  for (size_t i = 0; i < x.size(); ++i) worst = std::max(worst, std::fabs(y[i] / x[i] - 1));
  return worst;
}

int main() {
  std::printf("neighbors of 1 in E4M3: %g and %g; 1.06 is stored as %g, 1000 as %g, 0.0001 as %g\n",
              fp8(0.94F), fp8(1.12F), fp8(1.06F), fp8(1000), fp8(0.0001F));

  // Numbers of five steps. The right scale is known only after all values of a step, which would
  // then be read twice. A delayed scale uses the largest value of the step before.
  const Values shape{0.9F, -0.31F, 0.17F, 0.058F};
  const float size[5] = {1e-5F, 1.4e-5F, 1.2e-5F, 6e-5F, 5e-5F};
  float amax = 1e-5F;  // the largest value of the step before
  bool good = true, clipped = false;
  std::printf("\nstep   largest   scale   error with the delayed scale   without a scale\n");
  for (int step = 0; step < 5; ++step) {
    Values g;
    for (size_t i = 0; i < g.size(); ++i) g[i] = shape[i] * size[step];
    const float scale = scale_for(2 * amax);  // half the range stays free for growth
    const float late = error(g, stored(g, scale));
    const bool fits = largest(g) * scale <= kMax;
    std::printf("%4d   %.1e   2^%d    %7.4f%-21s   %.0f\n", step, largest(g), std::ilogb(scale),
                late, fits ? "" : " (clipped)", error(g, stored(g, 1)));
    // Neighbors lie at most 1/8 of a number apart, so the nearest is off by at most 1/16.
    good = good && (late <= 0.0625F || !fits);
    clipped = clipped || !fits;
    amax = largest(g);
  }

  // Two ranks store halves of one tensor; on one rank it has one scale. With a scale for each half
  // the small half is stored more exactly, but then the number of ranks changes the result. (To
  // fill four places, each half stands here twice.)
  const Values whole{0.017F, 0.031F, 500.0F, 730.0F};
  const Values one = stored(whole, scale_for(largest(whole)));
  const Values a{0.017F, 0.031F, 0.017F, 0.031F}, b{500.0F, 730.0F, 500.0F, 730.0F};
  const float agreed = scale_for(std::max(largest(a), largest(b)));  // an all-reduce of the maximum
  const Values shared_a = stored(a, agreed), shared_b = stored(b, agreed);
  const Values own_a = stored(a, scale_for(largest(a))), own_b = stored(b, scale_for(largest(b)));
  std::printf("\none rank:               %.7g %.7g %.7g %.7g\n", one[0], one[1], one[2], one[3]);
  std::printf("two, one scale:         %.7g %.7g %.7g %.7g\n", shared_a[0], shared_a[1],
              shared_b[0], shared_b[1]);
  std::printf("two, a scale each:      %.7g %.7g %.7g %.7g\n", own_a[0], own_a[1], own_b[0],
              own_b[1]);
  const bool same = one == Values{shared_a[0], shared_a[1], shared_b[0], shared_b[1]};
  const bool differ = one != Values{own_a[0], own_a[1], own_b[0], own_b[1]};
  return good && clipped && same && differ ? 0 : 1;
}
