// Task files: each line is a question, and says by itself of which kind it is.
//
//   {"context": "Two and two make", "choices": ["four", "five"], "gold": 0}    ranked choices
//   {"context": "Two and two make", "target": " four"}                         greedy match
//   {"context": "Two and two make", "target": " four", "until": ["\n"]}        a text up to a stop
//   {"text": "Two and two make four."}                                         rolling bits per
//   byte
//
// A choice has no blank in front: the delimiter stands between context and choice ("delimiter", one
// blank unless the line says otherwise). A target brings its own blank. "max_tokens" belongs to a
// text up to a stop. All of this is as lm-eval has it.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <sstream>
#include <string>
#include <tuple>
#include <vector>

#include "common/error.h"
#include "common/input_file.h"
#include "common/json.h"
#include "common/names.h"

namespace ladder {

enum class TaskKind : uint8_t { Choices, Match, Generate, Rolling };
constexpr auto names_of(TaskKind) { return std::array{"choices", "match", "generate", "rolling"}; }

struct Task {
  TaskKind kind = TaskKind::Choices;
  int64_t file = 0, line = 0;        ///< which of --tasks, and which line of it, from 0 on
  std::string name = {};             ///< for messages
  std::string context = {};          ///< with --shots: behind the examples
  std::vector<std::string> choices;  ///< one, if it is the target or the text
  int64_t gold = 0;
  std::string delimiter = " ";
  std::vector<std::string> until = {};
  int64_t max_tokens = 256;

  const std::string& answer() const { return choices[static_cast<size_t>(gold)]; }
  /// What is scored behind the context.
  std::string behind(const std::string& choice) const {
    return kind == TaskKind::Choices ? delimiter + choice : choice;
  }
  bool same_question(const Task& other) const {
    return std::tie(context, choices, gold) == std::tie(other.context, other.choices, other.gold);
  }
};

/// @throws an exception if the line is no task
inline Task task_of(const nlohmann::json& line) {
  Task task;
  const auto text = [&](const char* field) { return line.at(field).get<std::string>(); };
  if (line.contains("text")) {
    task.kind = TaskKind::Rolling;
    task.choices = {text("text")};
  } else if (line.contains("choices")) {
    task.choices = line.at("choices").get<std::vector<std::string>>();
    task.gold = line.at("gold").get<int64_t>();
  } else {
    task.kind = line.contains("until") ? TaskKind::Generate : TaskKind::Match;
    task.choices = {text("target")};
    task.until = line.value("until", task.until);
    task.max_tokens = line.value("max_tokens", task.max_tokens);
  }
  if (task.kind != TaskKind::Rolling) {
    task.context = text("context");
    task.delimiter = line.value("delimiter", task.delimiter);
  }
  const bool empty = std::ranges::any_of(task.choices, &std::string::empty);
  if (empty || task.gold < 0 || task.gold >= std::ssize(task.choices) || task.max_tokens < 1)
    throw UserError("legal are choices that are not empty, a gold that is one of them, max_tokens");
  return task;
}

/// Puts the first `shots` other questions of the file in front of each, with their answers.
inline void add_shots(std::vector<Task>& tasks, int64_t shots, const std::string& path) {
  const std::vector<Task> pool = tasks;
  for (Task& task : tasks) {
    std::string examples;
    int64_t count = 0;
    for (size_t i = 0; i < pool.size() && count < shots; ++i) {
      if (pool[i].kind == TaskKind::Rolling || pool[i].same_question(task)) continue;
      examples += pool[i].context + pool[i].delimiter + pool[i].answer() + "\n\n";
      ++count;
    }
    if (task.kind == TaskKind::Rolling) continue;
    if (count < shots)
      throw UserError("--shots {}: {} has {} other questions for line {}", shots, path, count,
                      task.line + 1);
    task.context = examples + task.context;
  }
}

/// @throws UserError that names the line
inline std::vector<Task> read_tasks(const std::vector<std::string>& paths, int64_t shots) {
  constexpr int64_t kMostBytes = int64_t{1} << 30;
  std::vector<Task> all;
  for (const std::string& path : paths) {
    std::istringstream lines(read_small_file(path, kMostBytes, "--tasks"));
    std::vector<Task> tasks;
    for (std::string line; std::getline(lines, line);) try {
        tasks.push_back(task_of(parse_json(line)));
        tasks.back().file = &path - paths.data();
        tasks.back().line = std::ssize(tasks) - 1;
        tasks.back().name = fmt::format("--tasks {}: line {}", path, tasks.size());
      } catch (const std::exception&) {
        throw UserError(
            "--tasks {}: line {} is no task; legal are context, choices (not empty) and gold (one "
            "of them), context and target, the same and until, or text (not empty)",
            path, tasks.size() + 1);
      }
    if (tasks.empty()) throw UserError("--tasks {}: holds no task", path);
    add_shots(tasks, shots, path);
    all.insert(all.end(), tasks.begin(), tasks.end());
  }
  return all;
}

}  // namespace ladder
