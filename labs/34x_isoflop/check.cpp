// Fits to drawn runs, and a prediction from twelve real ones, whose run is repeated here.
#include "labs/check.h"

#include <array>
#include <cmath>
#include <iterator>
#include <random>
#include <sstream>
#include <string>
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

/// Rounded, so that the order of operations does not matter.
void rows(Sheet& sheet, const std::string& gate, const std::vector<double>& numbers) {
  for (size_t i = 0; i < numbers.size(); ++i)
    sheet.bits(fmt::format("{}, number {}", gate, i), std::array{static_cast<float>(numbers[i])});
}

/// What a function returns, as numbers: a Judge has only them.
template <class Make>
std::vector<double> returned(Sheet& sheet, const std::string& what, Make&& make) {
  std::istringstream words(
      sheet.returned(what, [&] { return fmt::format("{}", fmt::join(make(), " ")); }));
  return {std::istream_iterator<double>(words), {}};
}

/// A case of its own: right() is what must come out, make() calls the function.
template <class Right, class Make>
void compare(Sheet& sheet, const std::string& gate, Right&& right, Make&& make) {
  sheet.run(gate, [&] {
    sheet.wanted([&] { rows(sheet, gate, right()); });
    rows(sheet, gate, returned(sheet, gate, make));
  });
}

/// The coefficients of the polynomial of least squares, that of x^0 first.
std::vector<double> polynomial(size_t degree, const std::vector<double>& x,
                               const std::vector<double>& y) {
  std::vector<std::vector<double>> m(degree + 1, std::vector<double>(degree + 2));
  for (size_t p = 0; p < x.size(); ++p)
    for (size_t i = 0; i <= degree; ++i) {
      for (size_t k = 0; k <= degree; ++k) m[i][k] += std::pow(x[p], i + k);
      m[i].back() += std::pow(x[p], i) * y[p];
    }
  std::vector<double> found;
  for (size_t i = 0; i <= degree; ++i)
    for (size_t row = 0; row <= degree; ++row) {
      const double factor = m[row][i] / m[i][i];
      for (size_t k = 0; row != i && k < degree + 2; ++k) m[row][k] -= factor * m[i][k];
    }
  for (size_t i = 0; i <= degree; ++i) found.push_back(m[i].back() / m[i][i]);
  return found;
}

// ---- drawn cases --------------------------------------------------------------------------------

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
  compare(
      sheet, "count/parameters", [&] { return std::vector{static_cast<double>(N)}; },
      [&] { return std::vector{product_parameters(layout)}; });
  GptConfig llama = preset("llama-nano");
  llama.layers = layers;
  llama.hidden = sheet.pick<int64_t>("hidden", {320, 352});  // with 384 a block has 12 C C
  const int64_t C = llama.channels, rows = llama.qkv_rows() + C + 3 * llama.hidden;
  compare(
      sheet, "count/parameters of a LLaMA",
      [&] { return std::vector{static_cast<double>(C * (layers * rows + llama.vocab))}; },
      [&] { return std::vector{product_parameters(ParamLayout(llama))}; });
  const auto tokens = sheet.pick<int64_t>("tokens", {128, 256});
  for (const double steps : {0.1, 7.4, 7.6, 1000.3})  // before they are whole
    compare(
        sheet, fmt::format("count/{} steps", steps),
        [&] { return std::vector{std::max(1.0, std::round(steps))}; },
        [&] {
          return std::vector{steps_of(steps * static_cast<double>(6 * N * tokens), N, tokens)};
        });
}

/// Runs around a best N, whose losses scatter: the lowest run is not the lowest point.
void run_best(Sheet& sheet, double C) {
  const std::vector<float> noise = sheet.normals("losses", 5, static_cast<uint64_t>(C / 1e9));
  std::vector<Trained> runs;
  std::vector<double> u, losses;
  const double best = 0.1 * std::sqrt(C);
  for (size_t i = 0; i < 5; ++i) {
    u.push_back(std::log(1.9) * (static_cast<double>(i) - 1.6));
    losses.push_back(2 + 0.2 * u[i] * u[i] + 0.02 * noise[i]);
    const double N = best * std::exp(u[i]);
    runs.push_back({N, C / (6 * N), losses[i]});
  }
  compare(
      sheet, fmt::format("best/{:.0e} operations", C),
      [&] {
        const std::vector<double> c = polynomial(2, u, losses);
        const double at = -c[1] / (2 * c[2]);
        return std::vector{best * std::exp(at), c[0] + c[1] * at / 2};
      },
      [&] {
        const Least least = best_of(runs);
        return std::vector{least.N, least.loss};
      });
}

void run_law(Sheet& sheet, size_t points) {
  const std::vector<float> noise = sheet.normals("points", 5);
  std::vector<double> x, y, log_x, log_y;
  for (size_t i = 0; i < points; ++i) {
    log_x.push_back(23 + 1.1 * static_cast<double>(i));
    log_y.push_back(0.47 * log_x[i] - 1.2 + 0.1 * noise[i]);
    x.push_back(std::exp(log_x[i]));
    y.push_back(std::exp(log_y[i]));
  }
  compare(
      sheet, fmt::format("law/{} points", points),
      [&] {
        const std::vector<double> line = polynomial(1, log_x, log_y);
        return std::vector{std::exp(line[0]), line[1]};
      },
      [&] {
        const Power power = power_law(x, y);
        return std::vector{power.k, power.a};
      });
}

/// @param below, above how far off the models beside the best N are, by ratio
void run_foretold(Sheet& sheet, double below, double above, int64_t nearest) {
  const double C = sheet.pick<double>("next", {5e11, 1e12});
  const Power size{sheet.pick("k", {0.2, 0.3}), 0.48}, loss{9, sheet.pick("b", {-0.05, -0.06})};
  const double N = size.k * std::pow(C, size.a);
  const std::vector<Model> models{{16, N / 5}, {32, N / below}, {48, N * above}, {64, N * 7}};
  compare(
      sheet, fmt::format("foretold/{} channels", nearest),
      [&] {
        return std::vector{static_cast<double>(nearest), loss.k * std::pow(C, loss.a)};
      },
      [&] {
        const Foretold next = foretell(size, loss, C, models);
        return std::vector{static_cast<double>(next.channels), next.loss};
      });
}

// ---- twelve runs, and the thirteenth ------------------------------------------------------------

constexpr int64_t kTokens = 4 * 32;  // of a step

Model model(int64_t channels) {
  return {channels, static_cast<double>(12 * channels * channels + 256 * channels)};
}

/// Losses of chapter 34's program with the flags of loss_of_run, on made_text().
std::vector<Budget> twelve_runs() {
  std::vector<Budget> budgets;
  const auto add = [&](double C, int64_t channels, const std::vector<double>& losses) {
    budgets.push_back({C, {}});
    for (const double loss : losses) {
      const double N = model(channels).N;
      budgets.back().runs.push_back({N, C / (6 * N), loss});
      channels += 4;
    }
  };
  add(2e9, 8, {2.3122, 2.2622, 2.3295, 2.3808});
  add(4e9, 8, {2.1543, 1.9758, 2.0574, 2.0672});
  add(8e9, 12, {1.8299, 1.7495, 1.7655, 1.9448});
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
  std::vector<std::string> words(std::istream_iterator<std::string>(line), {});
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
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
  run_count(sheet);
  for (const double C : {1e10, 3e10, 1e11, 2e11}) run_best(sheet, C);
  for (const size_t points : {3U, 5U}) run_law(sheet, points);
  sheet.run("twelve runs", [&] { run_real(sheet); });
  run_foretold(sheet, 1.62, 1.55, 48);  // by difference 32 are nearer
  run_foretold(sheet, 2.3, 2.4, 32);    // and here 32 again, which a rule by difference has right
}

}  // namespace ladder::lab
