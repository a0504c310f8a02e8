// GRPO on a bandit of three arms, in one short file: a group of draws, advantages, ratios, the
// clip, and the gradient by hand. An answer is one token long: the arm.
//
//   g++ -std=c++20 -ffp-contract=off chapters/37_rl/toy.cpp -o toy && ./toy

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <vector>

using Arms = std::array<float, 3>;
constexpr int kGroup = 6, kSteps = 40;
constexpr std::array<int, 3> kReward{0, 0, 1};  // the last arm pays

/// log p of an arm: the one function that both the sampler and the trainer call.
float log_p(const Arms& x, int arm) {
  const float most = *std::max_element(x.begin(), x.end());
  float sum = 0;
  for (const float logit : x) sum += std::exp(logit - most);
  return x[arm] - most - std::log(sum);
}

/// The same number to a mathematician: another program, with another order of operations.
float log_p_elsewhere(const Arms& x, int arm) {
  float sum = 0;
  for (int i = 2; i >= 0; --i) sum += std::exp(x[i]);
  return std::log(std::exp(x[arm]) / sum);
}

/// A number in (0, 1) that depends on the step, the answer and the arm, and on nothing else.
float noise(uint64_t step, uint64_t answer, uint64_t arm) {
  uint64_t z = (step << 40) + (answer << 20) + arm + 1;
  for (const uint64_t factor : {0xbf58476d1ce4e5b9U, 0x94d049bb133111ebU})
    z = (z ^ (z >> 29)) * factor;
  return (static_cast<float>(z >> 44) + 0.5F) / (1 << 20);
}

/// The arm with the largest logit and Gumbel noise: a draw from the softmax.
int draw(const Arms& x, int step, int answer) {
  const auto value = [&](int arm) {
    return x[arm] - std::log(-std::log(noise(step, answer, arm)));
  };
  return value(1) > value(0) ? (value(2) > value(1) ? 2 : 1) : (value(2) > value(0) ? 2 : 0);
}

struct Answer {
  int arm;
  float old, advantage;
};

std::vector<Answer> rollout(const Arms& x, int step) {
  std::vector<Answer> group;
  int rewards = 0;
  for (int a = 0; a < kGroup; ++a) {
    const int arm = draw(x, step, a);
    group.push_back({arm, log_p(x, arm), 0});
    rewards += kReward[arm];
  }
  // Not divided by the standard deviation: --advantage mean.
  for (Answer& one : group) one.advantage = kReward[one.arm] - static_cast<float>(rewards) / kGroup;
  return group;
}

float loss_of(const Arms& x, const std::vector<Answer>& group) {
  float loss = 0;
  for (const Answer& a : group) {
    const float ratio = std::exp(log_p(x, a.arm) - a.old);
    loss -= std::min(ratio * a.advantage, std::clamp(ratio, 0.8F, 1.28F) * a.advantage) / kGroup;
  }
  return loss;
}

/// d loss / d logit. A step takes it off: so each answer moves the logit of its arm up by
/// weight (1 - p), and those of the others down by weight p.
Arms gradient(const Arms& x, const std::vector<Answer>& group) {
  Arms d{};
  for (const Answer& a : group) {
    const float ratio = std::exp(log_p(x, a.arm) - a.old);
    const bool clipped = std::clamp(ratio, 0.8F, 1.28F) * a.advantage < ratio * a.advantage;
    const float weight = clipped ? 0 : ratio * a.advantage / kGroup;
    for (int i = 0; i < 3; ++i) d[i] += weight * (std::exp(log_p(x, i)) - (i == a.arm ? 1 : 0));
  }
  return d;
}

int main() {
  Arms x{0.7F, 0.1F, -0.4F};
  const std::vector<Answer> first = rollout(x, 0);
  const Arms d = gradient(x, first);
  Arms up = x, down = x;
  up[2] += 0.01F, down[2] -= 0.01F;
  const float slope = (loss_of(up, first) - loss_of(down, first)) / 0.02F;
  std::printf("first loss %g, its gradient %.4f %.4f %.4f (by difference %.4f)\n",
              loss_of(x, first), d[0], d[1], d[2], slope);
  bool good = std::fabs(loss_of(x, first)) < 1e-7F && std::fabs(d[2] - slope) < 1e-3F && d[2] != 0;
  int off = 0;
  for (int step = 0; step < kSteps; ++step) {
    const std::vector<Answer> group = rollout(x, step);
    for (const Answer& a : group) {
      good = good && std::exp(log_p(x, a.arm) - a.old) == 1;  // to the last bit
      off += std::exp(log_p_elsewhere(x, a.arm) - a.old) != 1;
    }
    for (int update = 0; update < 4; ++update) {
      const Arms slopes = gradient(x, group);
      for (int i = 0; i < 3; ++i) x[i] -= 2 * slopes[i];
    }
  }
  std::printf(
      "ratio is 1 at each first update; with another program's log p in %d of %d it is not\n", off,
      kSteps * kGroup);
  std::printf("p of the arm that pays: %.3f\n", std::exp(log_p(x, 2)));
  return good && off > 0 && log_p(x, 2) > std::log(0.9F) ? 0 : 1;
}
