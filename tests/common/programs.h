// Runs chapter programs as a user would: in a directory of their own, with a small text. No shell
// is involved.
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

/// `first` and the chapters that descend from it, in the order of scripts/chapters.txt. A flag that
/// `first` introduces exists in all of them.
std::vector<std::string> chapters_from(std::string_view first);
/// Three of them, for tests of what all chapters have from common/: `first`, 13_3d_parallel and
/// 38_pretrain, as far as this build has them.
std::vector<std::string> some_chapters_from(std::string_view first);

/// Whether tests and programs were compiled with a sanitizer: a run takes ten times as long.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

/// The words of a command line: "--clip 1 --agc 0.1" -> 4 of them.
std::vector<std::string> words(std::string_view line);

/// Each of `some` with each of "A | B". A range stands for each of its numbers: "recv:0..3" for
/// "recv:0 | recv:1 | recv:2 | recv:3".
std::vector<std::string> with_each(const std::vector<std::string>& some, const std::string& text);

/// The files of a list that CMake has joined by "|".
std::vector<std::string> listed_files(std::string_view list);
/// The lines of a table, without empty ones and without those that begin with "#".
std::vector<std::string> table_lines(const std::filesystem::path& file);

/// A chapter's program, and the command that starts it. The command gets the program as its last
/// words; if it is empty, the program is started directly.
struct Program {
  template <std::convertible_to<std::string_view> Name>
  Program(const Name& name, std::vector<std::string> command = {})
      : chapter(name), launcher(std::move(command)) {}

  std::string chapter;
  std::vector<std::string> launcher;
};
/// The program in that many processes.
Program under_mpirun(std::string_view chapter, int processes);

/// The program, to which a shell sends signals ("kill -INT $run") as soon as a file is not empty.
/// The trace is not empty after the first step.
Program signalled(Program program, const std::string& signals,
                  const std::string& file = "trace.jsonl.partial");

/// How a program ended: its exit status (128 + n if signal n killed it) and what it wrote.
struct Ended {
  int status;
  std::string out, err;
};

/// A test with a directory of its own, which is removed afterwards. Programs run in the directory,
/// so flags name files by their names in it. text.txt is the text to train on.
class Programs : public ::testing::Test {
 protected:
  Programs();

  std::filesystem::path path(std::string_view name) const;
  void write(std::string_view name, const std::string& bytes) const;
  std::string read(std::string_view name) const;
  std::vector<std::string> text_lines(std::string_view name) const;
  /// The lines of a file, each of which is JSON.
  std::vector<nlohmann::json> json_lines(std::string_view name) const;
  /// files_in() the directory.
  std::map<std::string, std::string> files() const;

  /// Runs a program with exactly these words after its name.
  Ended run(const Program& program, const std::vector<std::string>& args) const;
  /// Runs a program with these words. It must succeed.
  Ended succeed(const Program& program, std::string_view line) const;
  /// Runs it with small_run(flags). It must succeed.
  Ended train(const Program& program, std::string_view flags) const;
  /// From here on train() must end with this status. Status 3 means that a run came to its end
  /// without doing what was asked, for example because all steps were skipped.
  void must_end_with(int status) { status_ = status; }
  /// Runs it with small_run(flags). It must end with status 2, and say so much on stderr.
  void expect_refused(const Program& program, std::string_view flags, std::string_view says) const;
  /// train() with --report.
  nlohmann::json report(const Program& program, std::string_view flags) const;
  /// The same with --plan-only: no step is taken, and "memory" has predictions alone.
  nlohmann::json plan(const Program& program, std::string_view flags) const {
    return report(program, "--plan-only " + std::string(flags));
  }

 private:
  int status_ = 0;
  TempDir home_;  ///< programs run in run/; what they print goes into files beside it
};

/// `flags`, and defaults for a short run: for each flag that `flags` does not have.
std::vector<std::string> small_run(std::string_view flags);

}  // namespace ladder::test
