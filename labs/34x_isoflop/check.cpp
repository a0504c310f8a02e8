// Fits to drawn runs, and a prediction from twelve real ones, whose run is repeated here.
#include "labs/check.h"

#include <array>
#include <cmath>
#include <random>
#include <sstream>
#include <string>
#include <tuple>
#include <vector>

#include <fmt/format.h>

#include "labs/34x_isoflop/isoflop.h"

#ifndef LADDER_STUDENT
#include "common/json.h"
#include "common/output_file.h"
// Whoever judges trains with the chapter's program. Its main() has another name here.
#define main chapter_main
#include "chapters/34_scaling/main.cpp"
#undef main
#endif

namespace ladder::lab {
namespace {

using namespace isoflop;

/// Runs that took C operations each.
struct Budget {
  double C;
  std::vector<Trained> runs;
};

/// What a function returns, as numbers: a Judge has only them.
template <class Make>
std::vector<double> returned(Sheet& sheet, const std::string& what, Make&& make) {
  std::istringstream words(
      sheet.returned(what, [&] { return fmt::format("{}", fmt::join(make(), " ")); }));
  std::vector<double> numbers;
  for (double number = 0; words >> number;) numbers.push_back(number);
  return numbers;
}

/// Rounded, so that the order of operations does not matter.
void row(Sheet& sheet, const std::string& gate, const std::vector<double>& numbers) {
  sheet.bits(gate, std::vector<float>(numbers.begin(), numbers.end()));
}

// ---- what must come out
// --------------------------------------------------------------------------

/// The straight line of least squares through points, at a place.
double line_at(const std::vector<double>& x, const std::vector<double>& y, double at) {
  const auto n = static_cast<double>(x.size());
  double mean_x = 0, mean_y = 0, squares = 0, products = 0;
  for (const double value : x) mean_x += value / n;
  for (const double value : y) mean_y += value / n;
  for (size_t i = 0; i < x.size(); ++i) {
    squares += (x[i] - mean_x) * (x[i] - mean_x);
    products += (x[i] - mean_x) * (y[i] - mean_y);
  }
  return mean_y + products / squares * (at - mean_x);
}

/// Polynomials that are orthogonal over the points: no system of equations.
Least parabola(const std::vector<Trained>& runs) {
  const auto n = static_cast<double>(runs.size());
  double mean = 0, two = 0, three = 0;
  for (const Trained& run : runs) mean += std::log(run.N) / n;
  const auto u = [&](const Trained& run) { return std::log(run.N) - mean; };
  for (const Trained& run : runs) {
    two += std::pow(u(run), 2);
    three += std::pow(u(run), 3);
  }
  const auto q = [&](double at) { return at * at - three / two * at - two / n; };
  double a = 0, b = 0, c = 0, norm = 0;
  for (const Trained& run : runs) {
    c += run.loss / n;
    b += run.loss * u(run) / two;
    a += run.loss * q(u(run));
    norm += q(u(run)) * q(u(run));
  }
  a /= norm;
  const double at = (three / two - b / a) / 2;
  return {std::exp(mean + at), c + b * at + a * q(at)};
}

// ---- cases
// ---------------------------------------------------------------------------------------

void run_count(Sheet& sheet) {
  const auto channels = sheet.pick<int64_t>("channels", {8, 16, 24}),
             layers = sheet.pick<int64_t>("layers", {1, 2, 3});
  const ParamLayout layout({.name = "lab",
                            .layers = layers,
                            .heads = channels / 4,
                            .channels = channels,
                            .seq_len = 4,
                            .positions = 5,
                            .vocab = 11,
                            .padded_vocab = 16});
  const int64_t N = 12 * layers * channels * channels + 11 * channels;
  const auto tokens = sheet.pick<int64_t>("tokens", {128, 256});
  const std::array few{0.1, 7.4, 7.6, 1000.3};  // steps, before they are whole
  sheet.wanted([&] {
    row(sheet, "count/parameters", {static_cast<double>(N)});
    for (const double steps : few)
      row(sheet, fmt::format("count/{} steps", steps), {std::max(1.0, std::round(steps))});
  });
  row(sheet, "count/parameters",
      returned(sheet, "parameters", [&] { return std::vector{product_parameters(layout)}; }));
  for (const double steps : few)
    row(sheet, fmt::format("count/{} steps", steps),
        returned(sheet, fmt::format("steps {}", steps), [&] {
          return std::vector{steps_of(steps * static_cast<double>(6 * N * tokens), N, tokens)};
        }));
}

/// Runs around a best N, whose losses scatter: the lowest run is not the lowest point.
std::vector<Trained> scattered(const Sheet& sheet, double C, double best, uint64_t stream) {
  const std::vector<float> noise = sheet.normals("losses", 5, stream);
  std::vector<Trained> runs;
  for (const int i : {0, 1, 2, 3, 4}) {
    const double N = best * std::pow(1.9, i - 1.6), off = std::log(N / best);
    const double loss =
        9 * std::pow(C, -0.06) + 0.2 * off * off + 0.02 * noise[static_cast<size_t>(i)];
    runs.push_back({N, C / (6 * N), loss});
  }
  return runs;
}

std::vector<Budget> drawn_budgets(const Sheet& sheet) {
  std::vector<Budget> budgets;
  for (const double C : {1e10, 3e10, 1e11, 2e11})
    budgets.push_back({C, scattered(sheet, C, 0.1 * std::sqrt(C), static_cast<uint64_t>(C / 1e9))});
  return budgets;
}

void run_best(Sheet& sheet) {
  for (const Budget& budget : drawn_budgets(sheet)) {
    const std::string name = fmt::format("best/{:.0e} operations", budget.C);
    sheet.wanted([&] {
      const Least least = parabola(budget.runs);
      row(sheet, name, {least.N, least.loss});
    });
    row(sheet, name, returned(sheet, name, [&] {
          const Least least = best_of(budget.runs);
          return std::vector{least.N, least.loss};
        }));
  }
}

void run_law(Sheet& sheet, size_t points) {
  const std::vector<float> noise = sheet.normals("points", 5);
  std::vector<double> x, y, log_x, log_y;
  for (size_t i = 0; i < points; ++i) {
    x.push_back(1e10 * std::pow(3, i));
    y.push_back(0.3 * std::pow(x.back(), 0.47) * (1 + 0.1 * noise[i]));
    log_x.push_back(std::log(x.back()));
    log_y.push_back(std::log(y.back()));
  }
  sheet.wanted([&] {
    const double at_one = line_at(log_x, log_y, 0);
    row(sheet, "law/k", {std::exp(at_one)});
    row(sheet, "law/a", {line_at(log_x, log_y, 1) - at_one});
  });
  const std::vector<double> law = returned(sheet, "law", [&] {
    const Power power = power_law(x, y);
    return std::vector{power.k, power.a};
  });
  row(sheet, "law/k", {law.at(0)});
  row(sheet, "law/a", {law.at(1)});
}

void run_foretold(Sheet& sheet) {
  const double C = sheet.pick<double>("next", {5e11, 1e12});
  const Power size{sheet.pick("k", {0.2, 0.3}), 0.48}, loss{9, sheet.pick("b", {-0.05, -0.06})};
  const double N = size.k * std::pow(C, size.a);
  // By ratio 48 channels are nearest, then 32; by difference it is the other way round.
  const std::vector<Model> above{{16, N / 4}, {32, N / 1.62}, {48, N * 1.55}, {64, N * 4}};
  const std::vector<Model> below{{16, N / 5}, {32, N / 1.45}, {48, N * 2.2}, {64, N * 7}};
  for (const auto& [name, models, best] :
       {std::tuple{"48 are nearest", above, 48.0}, {"32 are nearest", below, 32.0}}) {
    sheet.wanted([&] {
      row(sheet, fmt::format("foretold/channels: {}", name), {best});
      row(sheet, fmt::format("foretold/loss: {}", name), {loss.k * std::pow(C, loss.a)});
    });
    const std::vector<double> said = returned(sheet, name, [&] {
      const Foretold next = foretell(size, loss, C, models);
      return std::vector{static_cast<double>(next.channels), next.loss};
    });
    row(sheet, fmt::format("foretold/channels: {}", name), {said.at(0)});
    row(sheet, fmt::format("foretold/loss: {}", name), {said.at(1)});
  }
}

// ---- twelve runs, and the thirteenth
// -------------------------------------------------------------

constexpr int64_t kTokens = 4 * 32;  // of a step

Model model(int64_t channels) {
  return {channels, static_cast<double>(12 * channels * channels + 256 * channels)};
}

/// Losses of chapter 34's program with the flags of loss_of_run, on made_text().
std::vector<Budget> twelve_runs() {
  struct Line {
    double C;
    std::array<int64_t, 4> channels;
    std::array<double, 4> losses;
  };
  constexpr std::array kRuns{Line{2e9, {8, 12, 16, 20}, {2.3122, 2.2622, 2.3295, 2.3808}},
                             Line{4e9, {8, 12, 16, 20}, {2.1543, 1.9758, 2.0574, 2.0672}},
                             Line{8e9, {12, 16, 20, 24}, {1.8299, 1.7495, 1.7655, 1.9448}}};
  std::vector<Budget> budgets;
  for (const auto& [C, channels, losses] : kRuns) {
    budgets.push_back({C, {}});
    for (size_t i = 0; i < channels.size(); ++i) {
      const double N = model(channels[i]).N, step = 6 * N * kTokens;
      budgets.back().runs.push_back({N, std::round(C / step) * kTokens, losses[i]});
    }
  }
  return budgets;
}

#ifndef LADDER_STUDENT
/// Words, frequent ones more often, of frequent letters. Each has four that like to follow.
std::string made_text(size_t bytes) {
  std::mt19937 draw(1);
  const auto often = [&](unsigned n) { return draw() % n * (draw() % n) / n; };
  constexpr unsigned kWords = 256;
  std::vector<std::string> words(kWords);
  std::vector<std::array<unsigned, 4>> next(kWords);
  for (std::string& word : words)
    for (unsigned letters = 2 + draw() % 6; letters > 0; --letters)
      word += static_cast<char>('a' + often(26));
  for (auto& row : next)
    for (unsigned& word : row) word = often(kWords);
  std::string text;
  for (unsigned word = 0; text.size() < bytes;) {
    text += words[word] + " ";
    word = draw() % 4 > 0 ? next[word][often(4)] : often(kWords);
  }
  return text.substr(0, bytes);
}

/// Trains as chapter 34 does, on a budget.
double loss_of_run(int64_t channels, double C) {
  OutputFile text("made.txt", "--data");
  text.write(made_text(1 << 20));
  text.commit();
  const int64_t steps = std::llround(C / (6 * model(channels).N * kTokens));
  std::istringstream line(fmt::format(
      "ch34_scaling --data made.txt --report run.json --model tiny --layers 1 --channels {} "
      "--heads {} --seq-len 32 --batch 4 --threads 1 --schedule cosine --clip 1 --beta2 0.99 "
      "--seed 1 --quiet --steps {} --warmup {} --lr 0.02 --mup 8,1",
      channels, channels / 4, steps, steps / 10));
  std::vector<std::string> words;
  for (std::string word; line >> word;) words.push_back(word);
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  run(parse_options(static_cast<int>(words.size()), argv.data()));
  return read_json("run.json")["val_loss"].get<double>();
}

/// Whether the run is as foretold.
std::string verdict(const std::vector<double>& said, const std::vector<Model>& models, double C) {
  const auto channels = static_cast<int64_t>(said.at(0));
  if (std::ranges::find(models, channels, &Model::channels) == models.end())
    return "there is no such model";
  const double loss = loss_of_run(channels, C);
  if (std::abs(said.at(1) / loss - 1) < 0.02) return "as foretold";
  return fmt::format("{} channels, loss {:.4f}; the run has {:.4f}", channels, said.at(1), loss);
}
#endif

void run_real(Sheet& sheet) {
  const double C = 1.2e10;
  std::vector<Model> models;
  for (int64_t channels = 4; channels <= 32; channels += 4) models.push_back(model(channels));
  sheet.wanted([&] { sheet.text("run/loss", "as foretold"); });
  const std::vector<double> said = returned(sheet, "next", [&] {
    std::vector<double> budgets, N, losses;
    for (const Budget& budget : twelve_runs()) {
      const Least best = best_of(budget.runs);
      budgets.push_back(budget.C);
      N.push_back(best.N);
      losses.push_back(best.loss);
    }
    const Foretold next = foretell(power_law(budgets, N), power_law(budgets, losses), C, models);
    return std::vector{static_cast<double>(next.channels), next.loss};
  });
#ifndef LADDER_STUDENT
  sheet.text("run/loss", verdict(said, models, C));
#endif
}

}  // namespace

void cases(Sheet& sheet) {
  sheet.run("a model", [&] { run_count(sheet); });
  sheet.run("drawn runs", [&] { run_best(sheet); });
  for (const size_t points : {3U, 5U})
    sheet.run(fmt::format("{} points", points), [&] { run_law(sheet, points); });
  sheet.run("twelve runs", [&] { run_real(sheet); });
  sheet.run("drawn laws", [&] { run_foretold(sheet); });
}

}  // namespace ladder::lab
