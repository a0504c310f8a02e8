// Pairs of completions: sums, h, losses with their slopes, and the weights of all positions.
#include "labs/check.h"

#include <array>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "labs/37x_dpo/dpo.h"

namespace ladder::lab {
namespace {

using namespace preference;

constexpr std::array kForms{Form::Dpo, Form::DpoNorm, Form::Ipo};
constexpr std::array kNames{"dpo", "dpo-norm", "ipo"};

/// Seven digits of a number: the order of operations does not matter, nor the sign of zero or NaN.
std::string shown(double value) {
  return std::isnan(value) ? "NaN" : fmt::format("{:.7g}", value + 0.0);
}

/// A case of its own, for some of a kind: right(one) is what must come out, make(one) calls the
/// function. All that must come out is written first, since the stub throws.
template <class Right, class Make>
void compare(Sheet& sheet, const std::string& gate, const std::vector<double>& some, Right&& right,
             Make&& make) {
  const auto rows = [&](auto&& numbers) {
    for (const double one : some)
      for (int i = 0; const double number : numbers(one))
        sheet.text(fmt::format("{}: {:.3g}, number {}", gate, one, i++), shown(number));
  };
  sheet.run(gate, [&] {
    sheet.wanted([&] { rows(right); });
    rows(make);
  });
}

/// The same by a slower way.
struct Right {
  static double mean_or_sum(Form form, double sum, int64_t tokens) {
    return form == Form::Dpo ? sum : sum / static_cast<double>(tokens);
  }
  static double h(Form form, const Sums& a, const Sums& b) {
    return mean_or_sum(form, a.now - a.base, a.tokens) -
           mean_or_sum(form, b.now - b.base, b.tokens);
  }
  /// log(1 + e^-x), and its slope.
  static Term logistic(double x) {
    if (std::isnan(x)) return {x, x};
    if (x < -700) return {-x, -1};
    return {std::log1p(std::exp(-x)), -1 / (1 + std::exp(x))};
  }
  static Term believed(const Loss& loss, double h) {
    const double off = h - 0.5 / loss.beta;
    if (loss.form == Form::Ipo) return {off * off, 2 * off};
    const Term term = logistic(loss.beta * h);
    return {term.loss, loss.beta * term.slope};
  }
  static Term term(const Loss& loss, double h) {
    const Term as_told = believed(loss, h), turned = believed(loss, -h);
    const double s = loss.smoothing;
    if (s == 0) return as_told;
    return {(1 - s) * as_told.loss + s * turned.loss, (1 - s) * as_told.slope - s * turned.slope};
  }
};

/// A text with numbers of its own.
struct Drawn {
  int64_t prompt, tokens;  ///< of the completion
  std::vector<float> now, base, weights;

  Drawn(const Sheet& sheet, uint64_t stream)
      : prompt(2 + of(sheet, 4, 2 * stream)), tokens(3 + of(sheet, 9, 2 * stream + 1)) {
    const int64_t positions = prompt + tokens - 1;
    now = sheet.normals("now", positions, stream);
    base = sheet.normals("base", positions, stream);
    for (size_t i = 0; i < now.size(); ++i) {
      now[i] = -30 - 7 * std::abs(now[i]);
      base[i] = now[i] + 0.7F * base[i];
    }
    weights.assign(now.size(), 99);
  }
  static int64_t of(const Sheet& sheet, uint64_t n, uint64_t at) {
    return static_cast<int64_t>(Random(sheet.seed(), "lengths").below(n, at));
  }
  Text text() { return {now, base, weights, prompt}; }
  Sums sums() const {
    Sums sums{0, 0, tokens};
    for (auto i = static_cast<size_t>(prompt - 1); i < now.size(); ++i) {
      sums.now += now[i];
      sums.base += base[i];
    }
    return sums;
  }
};

void run_sums(Sheet& sheet, uint64_t stream) {
  Drawn drawn(sheet, stream);
  const auto rows = [&](const Sums& sums) {
    const std::string where = fmt::format("sums/text {}: ", stream);
    sheet.text(where + "now", fmt::format("{:.17g}", sums.now));
    sheet.text(where + "base", fmt::format("{:.17g}", sums.base));
    sheet.text(where + "tokens", fmt::format("{}", sums.tokens));
  };
  sheet.run(fmt::format("text {}", stream), [&] {
    sheet.wanted([&] { rows(drawn.sums()); });
    rows(completion_sums(drawn.text()));
  });
}

void run_margin(Sheet& sheet, Form form, const char* name) {
  const auto sums = [&](double text) { return Drawn(sheet, static_cast<uint64_t>(text)).sums(); };
  compare(
      sheet, fmt::format("margin/{}", name), {0, 2, 4},
      [&](double one) { return std::vector{Right::h(form, sums(one), sums(one + 1))}; },
      [&](double one) { return std::vector{margin(form, sums(one), sums(one + 1))}; });
}

/// The forms with a logarithm: to the last bit, in FP32.
void run_first(Sheet& sheet, Form form, const char* name) {
  const auto rows = [&](auto&& loss_of) {
    for (const double beta : {0.1, 0.5, 3.0})
      for (const double s : {0.0, 0.1, 0.3})
        sheet.bits(fmt::format("first/{}: beta {}, s {}", name, beta, s),
                   std::array{loss_of(Loss{form, beta, s})});
  };
  sheet.run(fmt::format("first loss, {}", name), [&] {
    sheet.wanted([&] { rows([](const Loss&) { return 0x1.62e43p-1F; }); });
    rows([](const Loss& loss) { return static_cast<float>(term_of(loss, 0).loss); });
  });
}

void run_losses(Sheet& sheet, const std::string& what, const Loss& loss,
                const std::vector<double>& margins) {
  const auto numbers = [](const Term& term) { return std::vector{term.loss, term.slope}; };
  compare(
      sheet, fmt::format("loss/{}, s {}", what, loss.smoothing), margins,
      [&](double h) { return numbers(Right::term(loss, h)); },
      [&](double h) { return numbers(term_of(loss, h)); });
}

void run_weights(Sheet& sheet, Form form, const char* name) {
  const int64_t chosen = 3 + Drawn::of(sheet, 4, 90), rejected = 9 + Drawn::of(sheet, 4, 91);
  compare(
      sheet, fmt::format("weights/{}", name), {-0.3, 0.2},
      [&](double slope) {
        return std::vector{Right::mean_or_sum(form, -slope, chosen),
                           Right::mean_or_sum(form, slope, rejected)};
      },
      [&](double slope) {
        const Weights weights = token_weights(form, slope, chosen, rejected);
        return std::vector{weights.chosen, weights.rejected};
      });
}

void run_batch(Sheet& sheet, const Loss& loss, const char* name) {
  std::vector<Drawn> texts;
  for (uint64_t i = 0; i < 6; ++i) texts.emplace_back(sheet, 10 + i);
  std::vector<Pair> pairs;
  for (size_t i = 0; i < 6; i += 2) pairs.push_back({texts[i].text(), texts[i + 1].text()});
  const auto rows = [&](double mean) {
    sheet.text(fmt::format("batch/loss: {}", name), shown(mean));
    for (size_t i = 0; i < texts.size(); ++i) {
      std::string all;
      for (const float weight : texts[i].weights) all += shown(weight) + " ";
      sheet.text(fmt::format("batch/weights: {}, text {}", name, i), all);
    }
  };
  sheet.wanted([&] {
    double mean = 0;
    for (size_t i = 0; i < 6; i += 2) {
      const Sums a = texts[i].sums(), b = texts[i + 1].sums();
      const Term term = Right::term(loss, Right::h(loss.form, a, b));
      mean += term.loss / 3;
      for (const bool chosen : {true, false}) {
        Drawn& text = texts[chosen ? i : i + 1];
        const double slope = (chosen ? -1 : 1) * term.slope / 3;
        for (size_t t = 0; t < text.weights.size(); ++t) {
          const bool learned = static_cast<int64_t>(t) + 1 >= text.prompt;
          const double weight = Right::mean_or_sum(loss.form, slope, text.tokens);
          text.weights[t] = learned ? static_cast<float>(weight) : 0;
        }
      }
    }
    rows(mean);
    for (Drawn& text : texts) text.weights.assign(text.weights.size(), 99);
  });
  const double mean = weigh_pairs(loss, pairs);
  rows(mean);
}

}  // namespace

void cases(Sheet& sheet) {
  for (uint64_t i = 0; i < 4; ++i) run_sums(sheet, i);
  for (size_t f = 0; f < 3; ++f) run_margin(sheet, kForms[f], kNames[f]);
  for (size_t f = 0; f < 2; ++f) run_first(sheet, kForms[f], kNames[f]);
  const auto beta = sheet.pick("beta", {0.2, 0.4, 0.7});
  for (const double s : {0.0, 0.2}) {
    for (size_t f = 0; f < 3; ++f)
      run_losses(sheet, kNames[f], {kForms[f], beta, s}, {-9, -2.5, -0.3, 0.4, 3, 8});
    run_losses(sheet, "far away", {Form::Dpo, beta, s}, {-1e6, 1e6});
    run_losses(sheet, "NaN", {Form::Dpo, beta, s}, {std::numeric_limits<double>::quiet_NaN()});
  }
  for (size_t f = 0; f < 3; ++f) run_weights(sheet, kForms[f], kNames[f]);
  for (size_t f = 0; f < 3; ++f)
    sheet.run(fmt::format("batch, {}", kNames[f]), [&] {
      run_batch(sheet, {kForms[f], 0.2, f == 0 ? 0.1 : 0}, kNames[f]);
    });
}

}  // namespace ladder::lab
