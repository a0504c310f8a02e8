// Advantages of groups; ratio, clip and k3 of tokens; weights and counts of answers; divisors.
#include "labs/check.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "chapters/37_rl/objective.h"
#include "common/names.h"

namespace ladder::lab {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

/// Seven digits of a number: the order of operations does not matter, nor the sign of zero or NaN.
std::string shown(double value) {
  return std::isnan(value) ? "NaN" : fmt::format("{:.7g}", value + 0.0);
}
std::string shown(std::span<const float> values) {
  std::string all;
  for (const float value : values) all += shown(value) + " ";
  return all;
}

void run_advantages(Sheet& sheet) {
  const auto some = sheet.pick<int64_t>("answers", {5, 6, 7});
  for (const Advantage kind : {Advantage::Std, Advantage::Mean})
    for (const int64_t n : {int64_t{2}, int64_t{3}, some, int64_t{16}}) {
      const Random random(sheet.seed(), "rewards");
      std::vector<int64_t> rewards;
      for (int64_t i = 0; i < n; ++i)
        rewards.push_back(static_cast<int64_t>(random.below(4, static_cast<uint64_t>(i))));
      rewards[1] = rewards[0] + 1;
      const std::string where = fmt::format("advantage/{}, {} answers: ", to_string(kind), n);
      for (size_t i = 0; const double one : advantages(rewards, kind))
        sheet.text(where + fmt::format("{}", i++), shown(one));
    }
}

/// A sum times 1 / n is another number than the sum over n for these, and for 49 first.
void run_equal(Sheet& sheet) {
  const auto many = sheet.pick<int64_t>("equal answers", {98, 103, 107});
  for (const Advantage kind : {Advantage::Std, Advantage::Mean})
    for (const int64_t n : {int64_t{2}, int64_t{7}, int64_t{49}, many}) {
      std::string said;
      for (const int64_t reward : {0, 1, 3})
        for (const double one : advantages(std::vector(static_cast<size_t>(n), reward), kind))
          if (one != 0 && said.empty()) said = fmt::format("rewards of {}: {}", reward, one);
      sheet.text(fmt::format("equal/{}, {} answers", to_string(kind), n),
                 said.empty() ? "all are 0" : said);
    }
}

Objective objective_of(const Sheet& sheet) {
  Objective o;
  o.clip_low = sheet.pick("low", {0.1, 0.15, 0.2});
  o.clip_high = sheet.pick("high", {0.28, 0.3, 0.4});
  return o;
}

void token_rows(Sheet& sheet, const std::string& where, const TokenTerm& term) {
  sheet.text(where + "ratio", shown(term.ratio));
  sheet.text(where + "loss", shown(term.loss));
  sheet.text(where + "weight", shown(term.weight));
  sheet.text(where + "clipped", term.clipped ? "yes" : "no");
}

void run_tokens(Sheet& sheet) {
  const Objective o = objective_of(sheet);
  const double low = o.clip_low, high = o.clip_high, old = -1 - 0.1 * sheet.normals("old", 1)[0];
  const auto rows = [&](const std::string& where, const std::vector<double>& ratios) {
    for (const double ratio : ratios)
      for (const double advantage : {1.3, -0.7, 0.0})
        token_rows(sheet,
                   fmt::format("token/{}: {:.3g} with advantage {}, ", where, ratio, advantage),
                   grpo_token(o, advantage, old + std::log(ratio), old, old));
  };
  rows("far below", {0.3, 1 - 2 * low});
  rows("inside", {1 - low / 2, 1 + low / 2});
  rows("above 1 + low", {0.5 * (2 + low + high), 1 + 0.9 * high});
  rows("far above", {1 + 1.5 * high, 3});
  rows("NaN", {kNaN});
  for (const float now : sheet.normals("now", 8))
    for (const float off : {5.0F, 800.0F})  // exp(-800) is 0
      sheet.text(fmt::format("token/as it was drawn: {:.3g} - {}", now, off),
                 fmt::format("{:.17g}", grpo_token(o, 1, now - off, now - off, now).ratio));
}

void run_kl(Sheet& sheet) {
  for (const double d : {-2.0, -0.4, -0.1, 0.0, 0.2, 0.7, 1.5})
    sheet.text(fmt::format("kl/k3: d = {}", d), shown(k3(d)));
  Objective o = objective_of(sheet);
  const double base = -1.3;
  const auto row = [&](const std::string& where, double now, double advantage, auto&& member) {
    sheet.text(fmt::format("kl/{}: now {}, advantage {}", where, now, advantage),
               shown(member(grpo_token(o, advantage, now, -1, base))));
  };
  const auto loss = [](const TokenTerm& term) { return term.loss; };
  const auto weight = [](const TokenTerm& term) { return term.weight; };
  const auto kl = [](const TokenTerm& term) { return term.kl; };
  for (const double now : {-1.9, -1.05, -1.0, -0.95, -0.2}) row("of the report", now, 1, kl);
  o.kl = sheet.pick("kl", {0.3, 0.5});
  for (const double now : {-1.9, -1.05, -0.95}) {
    row("in the loss", now, 1, loss);
    row("in the weight", now, 1, weight);
  }
  row("in the weight of a clipped token", -0.2, 1, weight);
  row("in the weight of a clipped token", -1.9, -1, weight);
  o.kl = 0;
  const TokenTerm off = grpo_token(o, 1, -1, -1, kNaN);
  sheet.text("kl/off: loss", shown(off.loss));
  sheet.text("kl/off: weight", shown(off.weight));
}

/// Answers of drawn lengths. @param with_kl weighs k3, for which the base's numbers are there
void run_answers(Sheet& sheet, bool with_kl) {
  Objective o = objective_of(sheet);
  if (with_kl) o.kl = 0.4;
  for (uint64_t a = 0; a < 12; ++a) {
    const auto n = static_cast<int64_t>(24 + Random(sheet.seed(), "lengths").below(6, a));
    const std::vector<float> drawn = sheet.normals("now", n, a), away = sheet.normals("old", n, a);
    std::vector<float> now, old, base, weights(static_cast<size_t>(n));
    for (size_t i = 0; i < drawn.size(); ++i) {
      now.push_back(-1 - 0.3F * std::abs(drawn[i]));
      old.push_back(now[i] + 0.3F * (a < 2 ? std::abs(away[i]) : away[i]));  // ratios below 1
      if (with_kl) base.push_back(now[i] - 0.2F * away[i]);
    }
    if (a == 3) old[1] = static_cast<float>(kNaN);
    const AnswerTerm term = weigh_answer(o, a % 2 == 0 ? 0.7 : -1.1, now, old, base, 0.37, weights);
    sheet.text(fmt::format("answers/weights: {}", a), shown(weights));
    sheet.text(fmt::format("answers/loss: {}", a),
               std::isnan(term.loss) ? "NaN" : fmt::format("{:.9g}", term.loss));
    sheet.text(fmt::format("answers/counts: {}", a),
               shown(std::array{term.counts.ratio, term.counts.distance, term.counts.clipped}));
  }
}

void run_divisor(Sheet& sheet) {
  const auto tokens = sheet.pick<int64_t>("tokens", {31, 37, 45});
  const auto row = [&](const char* what, const Objective& o) {
    sheet.text(fmt::format("divisor/{}", what), fmt::format("{}", loss_divisor(o, 8, tokens, 40)));
  };
  Objective o;
  row("std", o);
  o.advantage = Advantage::Mean;
  row("mean", o);
  o.loss = RlLoss::Dpo;
  row("pairs", o);
}

}  // namespace

void cases(Sheet& sheet) {
  sheet.run("groups", [&] { run_advantages(sheet); });
  sheet.run("equal rewards", [&] { run_equal(sheet); });
  sheet.run("tokens", [&] { run_tokens(sheet); });
  sheet.run("distance", [&] { run_kl(sheet); });
  for (const bool with_kl : {false, true})
    sheet.run(with_kl ? "answers, with the base" : "answers", [&] { run_answers(sheet, with_kl); });
  sheet.run("a step", [&] { run_divisor(sheet); });
}

}  // namespace ladder::lab
