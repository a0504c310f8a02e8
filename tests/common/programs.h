// Runs chapter programs as a user would: no shell, in a directory of their own, with a small
// text that the tests write themselves.
#pragma once

#include <concepts>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/common/run_files.h"

namespace ladder::test {

/// The chapters that descend from `first`, and it, in the order of scripts/chapters.txt: a flag
/// that it introduces exists in all of them.
std::vector<std::string> chapters_from(std::string_view first);
/// The same where a run is short. Under a sanitizer it is not, and there three must do: `first`,
/// 13_3d_parallel and the last. For tests of what all chapters have from common/: what is a
/// chapter's own runs in its tests of memory.
std::vector<std::string> some_chapters_from(std::string_view first);
/// The chapters in which one rank trains alone.
std::vector<std::string> chapters_of_one_rank();

/// Whether tests and programs were compiled with a sanitizer: a run takes ten times as long.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

/// The words of a command line: "--clip 1 --agc 0.1" -> 4 of them.
std::vector<std::string> words(std::string_view line);

/// The files of a list that CMake has joined by "|".
std::vector<std::string> listed_files(std::string_view list);

/// A chapter's program, and what starts it: nothing, or a command that takes it as its last words.
struct Program {
  template <std::convertible_to<std::string_view> Name>
  Program(const Name& name, std::vector<std::string> command = {})
      : chapter(name), launcher(std::move(command)) {}

  std::string chapter;
  std::vector<std::string> launcher;
};
/// In so many processes.
Program under_mpirun(std::string_view chapter, int processes);

/// That program, to which a shell sends signals ("kill -INT $run") once a file has content: the
/// trace, which has it after a step.
Program signalled(Program program, const std::string& signals,
                  const std::string& file = "trace.jsonl.partial");

/// How a program ended: its exit status (128 + n if signal n killed it) and what it wrote.
struct Ended {
  int status;
  std::string out, err;
};

/// A test with a directory of its own, which goes with it. Programs run inside, so that their
/// flags name files as they lie there. text.txt is the text to train on.
class Programs : public ::testing::Test {
 protected:
  Programs();

  std::filesystem::path path(std::string_view name) const;
  void write(std::string_view name, const std::string& bytes) const;
  std::string read(std::string_view name) const;
  /// All files in the directory and below with their content; directories end with a slash.
  std::map<std::string, std::string> files() const;

  /// Runs a program with exactly these words after its name.
  Ended run(const Program& program, const std::vector<std::string>& args) const;
  /// The same with small_run() for whatever `flags` leave open, and it must succeed.
  Ended train(const Program& program, std::string_view flags) const;
  /// From here on train() must end with this status: 3 is a run that came to its end without having
  /// done what was asked, because all steps were skipped, say.
  void must_end_with(int status) { status_ = status; }
  /// train() with --report.
  nlohmann::json report(const Program& program, std::string_view flags) const;
  /// The same with --plan-only: no step is taken, and "memory" has predictions alone.
  nlohmann::json plan(const Program& program, std::string_view flags) const {
    return report(program, "--plan-only " + std::string(flags));
  }

 private:
  int status_ = 0;
  TempDir home_;  ///< run/ is where programs run; beside it lies what they print
};

/// `flags`, and for each flag of a short run that they leave open its value.
std::vector<std::string> small_run(std::string_view flags);

}  // namespace ladder::test
