// Tasks, and the answers that a step trains on, with the log-probabilities of whoever wrote them.
//
// A line of --data is a prompt, with an answer that a checker knows (GRPO), or with a better and a
// worse answer (DPO):
//
//   {"prompt": "12+34", "answer": "46"}
//   {"prompt": "12+34", "chosen": "46", "rejected": "1234"}
//
// A prompt is spelled as chapter 36 spells the message of a user. What is learned is the
// assistant's text and the token that ends it. The checker gives whole numbers, so equal answers
// have exactly equal rewards. An answer that was cut before it ended earns nothing.
//
// For GRPO the model itself draws the answers. For DPO the answers stand in --data, two for each
// line, and their log-probabilities are those of --base. A rank has all answers of a step; it
// trains on those of its prompts. A rollout can be written to a file, a line for each answer.
// Numbers in that JSON are exact, so a program that reads the file trains as the one that drew.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "chapters/26_packing/bundles.h"
#include "chapters/31_generate/batch.h"
#include "chapters/36_finetune/chat.h"
#include "common/comm/comm.h"
#include "common/error.h"
#include "common/input_file.h"
#include "common/json.h"
#include "common/names.h"
#include "common/output_file.h"

namespace ladder {

struct RlTask {
  std::vector<int32_t> prompt;
  std::string answer;                             ///< GRPO
  std::array<std::vector<int32_t>, 2> pair = {};  ///< DPO: chosen and rejected, without prompt
};

/// A checker: 1 if the text is the answer and has ended, else 0.
inline int64_t reward_of(std::string_view text, std::string_view answer, bool ended) {
  return ended && text == answer ? 1 : 0;
}

/// @param pairs DPO. @throws UserError, nlohmann::json::exception
inline RlTask read_task(const std::string& line, Speller& speller, bool pairs) {
  const nlohmann::json fields = parse_json(line);
  RlTask task;
  ChatTokens prompt;
  speller.add(prompt, "user", fields.at("prompt").get<std::string>(), Learn::Answers);
  ChatTokens open = prompt;
  speller.open(open, "assistant");
  task.prompt = open.tokens;
  if (!pairs) {
    task.answer = fields.at("answer").get<std::string>();
    return task;
  }
  for (const auto& [name, tokens] :
       {std::pair{"chosen", &task.pair[0]}, {"rejected", &task.pair[1]}}) {
    ChatTokens whole = prompt;
    speller.add(whole, "assistant", fields.at(name).get<std::string>(), Learn::Answers);
    for (size_t i = 0; i < whole.tokens.size(); ++i)
      if (whole.learned[i]) tokens->push_back(whole.tokens[i]);
  }
  return task;
}

/// @param T the window, which prompt and answer must fit. @throws UserError that names the line
inline std::vector<RlTask> read_rl_tasks(const std::string& path, Speller& speller, bool pairs,
                                         int64_t T) {
  constexpr int64_t kMostBytes = int64_t{1} << 30;
  std::istringstream lines(read_small_file(path, kMostBytes, "--data"));
  std::vector<RlTask> tasks;
  int64_t number = 0;
  for (std::string line; std::getline(lines, line);) try {
      ++number;
      tasks.push_back(read_task(line, speller, pairs));
      const RlTask& task = tasks.back();
      const size_t longest = std::max({task.pair[0].size(), task.pair[1].size(), size_t{1}});
      if (std::ssize(task.prompt) + static_cast<int64_t>(longest) > T)
        throw UserError("{} tokens; legal are {}, the window", task.prompt.size() + longest, T);
    } catch (const nlohmann::json::exception&) {
      throw UserError("--data {}: line {} is not {{\"prompt\": \"...\", {}}}", path, number,
                      pairs ? R"("chosen": "...", "rejected": "...")" : R"("answer": "...")");
    } catch (const UserError& e) {
      throw UserError("--data {}: line {}: {}", path, number, e.what());
    }
  return tasks;
}

/// An answer and what it earns.
struct Scored : Answer {
  int64_t reward = 0;
};

inline nlohmann::json to_json(const Scored& answer) {
  const auto drawn = answer.drawn();
  return {
      {"rollout", answer.step},      {"line", answer.line},
      {"answer", answer.number},     {"tokens", std::vector<int32_t>(drawn.begin(), drawn.end())},
      {"logprobs", answer.logprobs}, {"end", to_string(answer.end)},
      {"reward", answer.reward}};
}

/// What lines of rollouts belong to: the prompts of --data, and a model.
struct AnswerLimits {
  const std::vector<RlTask>& tasks;
  int64_t vocab, T;  ///< T: the window
};

/// @throws nlohmann::json::exception, UserError
inline Scored scored_from(const nlohmann::json& line, const AnswerLimits& limits) {
  constexpr int64_t kMost = int64_t{1} << 40;
  const auto number = [&](const char* name, int64_t most) {
    const auto value = line.at(name).get<double>();
    if (!(value >= 0 && value <= static_cast<double>(most)))
      throw UserError("{} {}; legal are 0 to {}", name, value, most);
    return line.at(name).get<int64_t>();
  };
  Scored answer;
  answer.step = number("rollout", kMost);
  answer.line = number("line", std::ssize(limits.tasks) - 1);
  answer.number = number("answer", kMost);
  answer.reward = number("reward", kMost);
  answer.logprobs = line.at("logprobs").get<std::vector<float>>();
  answer.tokens = limits.tasks[static_cast<size_t>(answer.line)].prompt;
  answer.prompt = std::ssize(answer.tokens);
  for (const auto token : line.at("tokens").get<std::vector<double>>()) {
    if (!(token >= 0 && token < static_cast<double>(limits.vocab)))
      throw UserError("token {}; legal are 0 to {}", token, limits.vocab - 1);
    answer.tokens.push_back(static_cast<int32_t>(token));
  }
  const std::optional<End> end = named<End>(line.at("end").get<std::string>());
  if (!end)
    throw UserError("end {}; legal are {}", line.at("end").dump(), fmt::join(kNames<End>, ", "));
  answer.end = *end;
  if (answer.drawn().empty() || answer.drawn().size() != answer.logprobs.size())
    throw UserError("legal are as many logprobs as tokens, at least one");
  if (!std::ranges::all_of(answer.logprobs, [](float log_p) { return log_p <= 0; }))
    throw UserError("a logprob is above 0");
  if (std::ssize(answer.tokens) > limits.T)
    throw UserError("prompt and answer have {} tokens; legal are {}, the window",
                    answer.tokens.size(), limits.T);
  return answer;
}

/// Prompts in the order of `lines`, and the `count` answers to each in theirs.
/// @throws UserError if answers are missing, or belong to other prompts
inline void sort_answers(std::vector<Scored>& answers, const std::vector<int64_t>& lines,
                         int64_t count) {
  std::map<int64_t, size_t> place;
  for (const int64_t line : lines) place.emplace(line, place.size());
  std::vector<int64_t> found(lines.size());
  for (const Scored& answer : answers)
    if (const auto at = place.find(answer.line); at != place.end()) ++found[at->second];
  if (std::ranges::count(found, count) != std::ssize(found) ||
      std::ssize(answers) != count * std::ssize(lines))
    throw UserError("a rollout of {} answers; legal are {} to each of {} prompts of --data",
                    answers.size(), count, lines.size());
  std::ranges::sort(answers, {}, [&](const Scored& one) {
    return std::pair{place.at(one.line), one.number};
  });
  for (int64_t i = 0; const Scored& answer : answers)
    if (answer.number != i++ % count)
      throw UserError("a rollout with answer {} to line {}; legal is each from 0 to {} once",
                      answer.number, answer.line, count - 1);
}

/// The answers of all ranks, on each rank.
inline std::vector<Scored> all_of_ranks(Comm& comm, const std::vector<Scored>& own,
                                        const AnswerLimits& limits) {
  nlohmann::json lines = nlohmann::json::array();
  for (const Scored& answer : own) lines.push_back(to_json(answer));
  std::string all;
  for (const std::string& text : gather_text(comm, json_text(lines))) all += text + "\n";
  int64_t bytes = std::ssize(all);
  comm.broadcast({.ptr = &bytes, .dtype = Dtype::I64, .shape = {1}}, 0);
  all.resize(static_cast<size_t>(bytes));
  comm.broadcast({.ptr = all.data(), .dtype = Dtype::U8, .shape = {bytes}}, 0);
  std::vector<Scored> answers;
  std::istringstream parts(all);
  for (std::string part; std::getline(parts, part);)
    for (const nlohmann::json& line : parse_json(part))
      answers.push_back(scored_from(line, limits));
  return answers;
}

/// The answers that a step trains on. A checkpoint between two updates holds them.
struct Rollout {
  const AnswerLimits& limits;
  std::vector<Scored> answers = {};

  /// @throws UserError if a checkpoint between two updates held no rollout
  void check(int64_t count) const {
    if (std::ssize(answers) != count)
      throw UserError("--load: holds a rollout of {} answers, where this step goes on with {}",
                      answers.size(), count);
  }
  nlohmann::json state() const {
    nlohmann::json lines = nlohmann::json::array();
    for (const Scored& answer : answers) lines.push_back(to_json(answer));
    return lines;
  }
  void set_state(const nlohmann::json& lines) {
    answers.clear();
    for (const nlohmann::json& line : lines) answers.push_back(scored_from(line, limits));
  }
  int64_t tokens() const {
    int64_t sum = 0;
    for (const Scored& answer : answers) sum += std::ssize(answer.drawn());
    return sum;
  }
};

/// --rollouts: a file of answers.
class RolloutFile {
 public:
  /// @throws UserError that names the line
  RolloutFile(std::string path, bool reads, bool speaks, const AnswerLimits& limits)
      : path_(std::move(path)) {
    if (reads) read(limits);
    if (!reads && speaks && !path_.empty())
      out_ = std::make_unique<OutputFile>(path_, "--rollouts");
  }

  void add(const std::vector<Scored>& answers) {
    for (const Scored& answer : answers)
      if (out_) out_->write(json_text(to_json(answer)) + "\n");
  }
  void commit() {
    if (out_) out_->commit();
  }
  /// @throws UserError
  std::vector<Scored> of(int64_t number) const {
    const auto found = read_.find(number);
    if (found == read_.end())
      throw UserError("--rollouts {}: lacks rollout {}, which this step trains on", path_, number);
    return found->second;
  }

 private:
  void read(const AnswerLimits& limits) {
    constexpr int64_t kMostBytes = int64_t{1} << 32;
    std::istringstream lines(read_small_file(path_, kMostBytes, "--rollouts"));
    int64_t number = 0;
    for (std::string line; std::getline(lines, line);) try {
        ++number;
        Scored answer = scored_from(parse_json(line), limits);
        read_[answer.step].push_back(std::move(answer));
      } catch (const std::exception& e) {
        throw UserError("--rollouts {}: line {}: {}; legal are lines that --rollouts wrote", path_,
                        number, e.what());
      }
  }

  std::string path_;
  std::unique_ptr<OutputFile> out_;              ///< on the rank that speaks
  std::map<int64_t, std::vector<Scored>> read_;  ///< by their numbers
};

/// Fills a batch: each answer is a document behind its prompt, whose tokens are not learned, and a
/// prompt with its `group` answers is a bundle.
inline void fill(BundleBatch& batch, std::span<const Scored> answers, int64_t group) {
  struct File {
    std::vector<int32_t> all;
    void read(int64_t begin, std::span<int32_t> to) const {
      std::copy_n(all.begin() + begin, to.size(), to.begin());
    }
  };
  batch.clear();
  for (size_t first = 0; first < answers.size(); first += static_cast<size_t>(group)) {
    File file;
    std::vector<Piece> pieces;
    for (const Scored& answer : answers.subspan(first, static_cast<size_t>(group))) {
      pieces.push_back({std::ssize(file.all), std::ssize(answer.tokens) - 1});
      file.all.insert(file.all.end(), answer.tokens.begin(), answer.tokens.end());
      const auto prompt = file.all.end() - std::ssize(answer.tokens);
      std::transform(prompt, prompt + answer.prompt, prompt, [](int32_t token) { return ~token; });
    }
    batch.add(file, pieces);
  }
}

}  // namespace ladder
