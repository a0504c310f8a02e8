// 16 bits in one short file: what BF16 loses when it adds, why a master copy in FP32 learns, and
// why FP16 wants a loss scale that is a power of two.
//
//   g++ -std=c++20 chapters/05_mixed_precision/toy.cpp -o toy && ./toy

#include <algorithm>
#include <cmath>
#include <cstdio>

/// x rounded to `digits` binary digits, to nearest, ties to even. Below 2^least numbers are
/// subnormal: neighbors come no closer, and the smallest number is 2^(least + 1 - digits).
float rounded(float x, int digits, int least) {
  if (x == 0) return x;
  const int exponent = std::max(std::ilogb(x), least);
  const float unit = std::ldexp(1.0F, exponent + 1 - digits);  // the distance of neighbors
  return std::nearbyint(x / unit) * unit;
}
float bf16(float x) { return rounded(x, 8, -126); }
float fp16(float x) {
  const float y = rounded(x, 11, -14);
  return std::fabs(y) > 65504 ? std::copysign(INFINITY, y) : y;
}

int main() {
  std::printf("1.005 is stored as: BF16 %.7f, FP16 %.7f, FP32 %.7f\n", bf16(1.005F), fp16(1.005F),
              1.005F);

  // A sum in BF16 stops growing: 257 lies halfway between 256 and 258, and rounds to 256.
  float sum = 0, wide = 0;  // in BF16, in FP32
  for (int i = 0; i < 1000; ++i) {
    sum = bf16(sum + 1);
    wide += 1;
  }
  std::printf("a thousand ones: added in BF16 %g, in FP32 and rounded once %g\n", sum, bf16(wide));

  // A weight that learns 0.001 a step. The next BF16 number after 1 is 1.0078, and what lies nearer
  // to 1 rounds to 1.
  float weight = 1, master = 1;
  std::printf("\nstep   weight in BF16   FP32 master   what forward reads of the master\n");
  for (int step = 1; step <= 8; ++step) {
    weight = bf16(weight + 0.001F);
    master = master + 0.001F;
    std::printf("%4d   %-14g   %-11g   %g\n", step, weight, master, bf16(master));
  }

  // A gradient that is too small for FP16. The loss, and so each gradient, is multiplied by the
  // scale before FP16 stores the gradient. The division by the scale is in FP32. A scale that is a
  // power of two changes no digit; 64000 does.
  const float gradient = std::ldexp(1365.0F, -40);  // 11 binary digits, as FP16 has
  std::printf("\na gradient of %.8g in FP16: %g\n", gradient, fp16(gradient));
  const float scale = 65536, by_two = fp16(gradient * scale) / scale;
  const float by_64000 = fp16(gradient * 64000) / 64000;
  std::printf("scaled by 65536 and back:   %.8g\nscaled by 64000 and back:   %.8g\n", by_two,
              by_64000);
  float highest = std::ldexp(1.0F, 50);  // the gradient is Inf: no step, and half the scale
  while (std::isinf(fp16(gradient * highest))) highest /= 2;
  std::printf("the largest power of two without an overflow: 2^%d\n", std::ilogb(highest));

  const bool lost = sum == 256 && weight == 1 && fp16(gradient) == 0 && by_64000 != gradient;
  const bool kept = bf16(wide) == 1000 && bf16(master) > 1 && by_two == gradient;
  return lost && kept && std::isinf(fp16(gradient * highest * 2)) ? 0 : 1;
}
