// Scores: from log-likelihoods to shares and bits per byte, with their standard errors.
//
// Every score is a ratio of two sums over lines. A mean of ratios is another number: a long text
// would count as much as a short one.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <numbers>
#include <string>
#include <utility>
#include <vector>

#include "chapters/35_evaluate/tasks.h"
#include "common/json.h"
#include "common/tokens/unicode.h"

namespace ladder {

/// That of the scored tokens of a request, or of all windows of a text.
struct LogLikelihood {
  double sum = 0;      ///< of log p, in the order of the tokens
  bool greedy = true;  ///< whether each token is the most likely one at its place
  int64_t tokens = 0;

  void operator+=(const LogLikelihood& more) {
    sum += more.sum;
    greedy = greedy && more.greedy;
    tokens += more.tokens;
  }
};

/// What the model has made of a task: a log-likelihood for each choice, or a text.
struct Outcome {
  std::vector<LogLikelihood> of;
  std::string text = {};
};

/// A sum over lines, divided by another one.
class Ratio {
 public:
  void add(std::pair<double, double> line) { lines_.push_back(line); }
  double part() const {
    return sum([](double part, double) { return part; });
  }
  double whole() const {
    return sum([](double, double whole) { return whole; });
  }
  double value() const { return part() / whole(); }
  /// The standard error of value(), if lines are drawn independently: by part - value * whole of
  /// each line. Where each whole is 1, it is the standard error of a mean. NaN for one line.
  double error() const {
    const double n = static_cast<double>(lines_.size()), r = value();
    const double squares = sum([r](double part, double whole) {
      const double left = part - r * whole;
      return left * left;
    });
    return n == 1 ? std::nan("") : std::sqrt(squares * n / (n - 1)) / whole();
  }

 private:
  template <class F>
  double sum(F&& of_line) const {
    double all = 0;
    for (const auto& [part, whole] : lines_) all += of_line(part, whole);
    return all;
  }
  std::vector<std::pair<double, double>> lines_;
};

/// The choice with the largest log-likelihood over `length`; the first of equals.
template <class Length>
int64_t best_choice(const Task& task, const Outcome& outcome, Length&& length) {
  std::vector<double> each;
  for (size_t i = 0; i < outcome.of.size(); ++i)
    each.push_back(outcome.of[i].sum / static_cast<double>(length(task.choices[i])));
  return std::ranges::max_element(each) - each.begin();
}

/// part and whole of each score of a line, by the name of the score.
using LineScores = std::map<std::string, std::pair<double, double>>;

inline LineScores scores_of(const Task& task, const Outcome& outcome) {
  const auto is_gold = [&](auto&& length) {
    return std::pair{best_choice(task, outcome, length) == task.gold ? 1.0 : 0.0, 1.0};
  };
  switch (task.kind) {
    case TaskKind::Choices:
      return {{"acc", is_gold([](const std::string&) { return 1; })},
              {"acc_norm", is_gold([](const std::string& s) { return characters(s); })},
              {"acc_bytes", is_gold([](const std::string& s) { return std::ssize(s); })}};
    case TaskKind::Match:
      return {{"greedy", {outcome.of[0].greedy ? 1.0 : 0.0, 1.0}},
              {"nats", {-outcome.of[0].sum, 1.0}}};
    case TaskKind::Generate:
      return {{"exact_match", {outcome.text == task.answer() ? 1.0 : 0.0, 1.0}}};
    default:
      return {{"bits_per_byte",
               {-outcome.of[0].sum / std::numbers::ln2, static_cast<double>(task.answer().size())}},
              {"nats_per_token", {-outcome.of[0].sum, static_cast<double>(outcome.of[0].tokens)}}};
  }
}

/// A line of --out.
inline std::string json_line(const Task& task, const Outcome& outcome) {
  nlohmann::json line{{"file", task.file}, {"line", task.line}, {"kind", to_string(task.kind)}};
  if (task.kind == TaskKind::Generate) line["text"] = outcome.text;
  for (const LogLikelihood& one : outcome.of) {
    line["loglikelihoods"].push_back(one.sum);
    line["greedy"].push_back(one.greedy);
    line["tokens"].push_back(one.tokens);
  }
  for (const auto& [name, score] : scores_of(task, outcome)) line["scores"][name] = score.first;
  return json_text(line) + "\n";
}

/// The scores of a file: sums over its lines.
using FileScores = std::map<std::string, Ratio>;

inline std::vector<FileScores> sum_up(const std::vector<Task>& tasks,
                                      const std::vector<Outcome>& outcomes) {
  std::vector<FileScores> files(static_cast<size_t>(tasks.back().file) + 1);
  for (size_t i = 0; i < tasks.size(); ++i)
    for (const auto& [name, line] : scores_of(tasks[i], outcomes[i]))
      files[static_cast<size_t>(tasks[i].file)][name].add(line);
  return files;
}

inline nlohmann::json to_json(const FileScores& scores) {
  nlohmann::json json;
  for (const auto& [name, ratio] : scores)
    json[name] = {{"value", ratio.value()},
                  {"error", ratio.error()},
                  {"part", ratio.part()},
                  {"whole", ratio.whole()}};
  return json;
}

}  // namespace ladder
