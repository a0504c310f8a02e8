// Weight decay in one short file: two weights whose gradients differ 1024-fold in size, with SGD,
// Adam with L2, and AdamW. 1024 is a power of two, and such a factor changes no rounding, so ==
// may compare.
//
//   g++ -std=c++20 chapters/02_adamw/toy.cpp -o toy && ./toy

#include <cmath>
#include <cstdio>

constexpr double lr = 0.0078125, decay = 0.25, beta1 = 0.875, beta2 = 0.96875;  // 1/128, 1/4, ...

enum class Decay { L2, Decoupled };

struct Weight {
  double w = 1;         // the weight
  double m = 0, v = 0;  // Adam's running means of the gradient and of its square
};

/// w <- w - lr g. L2 adds decay * w to the gradient; decoupled decay takes lr * decay * w off w.
void sgd(Weight& x, double g, Decay how) {
  if (how == Decay::L2)
    x.w -= lr * (g + decay * x.w);
  else
    x.w = x.w - lr * g - lr * decay * x.w;
}

/// The same two decays, around Adam: a step of lr m / sqrt(v), where m and v are corrected for
/// their start at zero. Others add 1e-8 to the root. Here nothing is added, so the size of the
/// gradients cancels exactly.
void adam(Weight& x, double g, int t, Decay how) {
  if (how == Decay::L2) g += decay * x.w;
  x.m = beta1 * x.m + (1 - beta1) * g;
  x.v = beta2 * x.v + (1 - beta2) * g * g;
  const double m = x.m / (1 - std::pow(beta1, t)), v = x.v / (1 - std::pow(beta2, t));
  const double decayed = how == Decay::Decoupled ? lr * decay * x.w : 0;
  x.w -= lr * m / std::sqrt(v) + decayed;
}

int main() {
  Weight sgd_l2, sgd_decoupled;
  sgd(sgd_l2, 1, Decay::L2);
  sgd(sgd_decoupled, 1, Decay::Decoupled);

  Weight l2[2], adamw[2];  // [0] has large gradients, [1] small ones
  const double size[2] = {16, 1.0 / 64};

  std::printf("Large gradients 16, -16, ..., small ones 1/64, -1/64, ...: they nearly cancel.\n\n");
  std::printf("weights    Adam with L2         AdamW\n");
  std::printf("step      large    small      large    small\n");
  for (int t = 1; t <= 64; ++t) {
    const double sign = t % 2 == 1 ? 1 : -1;
    for (int i = 0; i < 2; ++i) {
      adam(l2[i], sign * size[i], t, Decay::L2);
      adam(adamw[i], sign * size[i], t, Decay::Decoupled);
    }
    if ((t & (t - 1)) == 0)  // a power of two
      std::printf("%4d    %.5f  %.5f    %.5f  %.5f\n", t, l2[0].w, l2[1].w, adamw[0].w, adamw[1].w);
  }

  std::printf("\nSGD: one step with L2 %.9f, with decoupled decay %.9f\n", sgd_l2.w,
              sgd_decoupled.w);
  std::printf(
      "AdamW moves both weights alike: m / sqrt(v) does not know how large gradients are.\n");
  std::printf(
      "L2 is divided by sqrt(v), too: a weight with large gradients hardly decays, and with\n");
  std::printf("small ones the decay is most of the gradient, so that steps are nearly lr long.\n");
  const bool same = adamw[0].w == adamw[1].w && sgd_l2.w == sgd_decoupled.w;
  return same && l2[0].w > adamw[0].w && l2[1].w < adamw[1].w ? 0 : 1;
}
