#include "tests/common/programs.h"

#include <algorithm>
#include <fcntl.h>
#include <fstream>
#include <regex>
#include <spawn.h>
#include <sstream>
#include <stdexcept>
#include <unistd.h>
#include <utility>

#include <sys/wait.h>

#include "common/run/ending.h"

namespace ladder::test {
namespace {

namespace fs = std::filesystem;

struct Chapter {
  std::string name;
  std::string parents;  ///< "-", or names between commas
};

/// The tree, parents first.
std::vector<Chapter> chapters() {
  const std::vector<std::string> table = words(LADDER_CHAPTERS);
  std::vector<Chapter> all;
  for (size_t i = 0; i < table.size(); i += 2) all.push_back({table[i], table[i + 1]});
  return all;
}

// Of every 10 bytes one is held out: 4,000 make validation short and leave the draw of batches
// room.
constexpr size_t kTextBytes = 4000;

/// Sentences with a vocabulary of 16 words: enough to learn in a few steps.
std::string small_text() {
  const std::vector<std::string> vocabulary =
      words("the a light day night water earth of and was made saw said good new old");
  std::string text;
  uint32_t state = 1;
  for (int i = 1; text.size() < kTextBytes; ++i) {
    state = state * 1664525 + 1013904223;  // Numerical Recipes; the low bits are poor
    text += vocabulary[state >> 28] + (i % 8 == 0 ? ".\n" : " ");
  }
  text.resize(kTextBytes);
  return text;
}

/// What the child opens before it starts.
class FileActions {
 public:
  FileActions() { posix_spawn_file_actions_init(&actions_); }
  FileActions(const FileActions&) = delete;
  FileActions& operator=(const FileActions&) = delete;
  ~FileActions() { posix_spawn_file_actions_destroy(&actions_); }

  void enter(const fs::path& dir) { posix_spawn_file_actions_addchdir_np(&actions_, dir.c_str()); }
  void redirect(int fd, const fs::path& to) {
    posix_spawn_file_actions_addopen(&actions_, fd, to.c_str(), O_RDWR | O_CREAT | O_TRUNC, 0600);
  }
  const posix_spawn_file_actions_t* get() const { return &actions_; }

 private:
  posix_spawn_file_actions_t actions_;
};

/// Runs a program to its end. Its output goes through files, so that no pipe can fill up.
int spawn(std::vector<std::string> args, const FileActions& actions) {
  std::vector<char*> argv;
  for (std::string& arg : args) argv.push_back(arg.data());
  argv.push_back(nullptr);
  pid_t child = 0;
  if (posix_spawnp(&child, argv[0], actions.get(), nullptr, argv.data(), environ) != 0)
    throw std::runtime_error("cannot start " + args[0]);
  int status = 0;
  if (waitpid(child, &status, 0) != child) throw std::runtime_error("lost " + args[0]);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace

std::vector<std::string> chapters_from(std::string_view first) {
  std::vector<std::string> found;
  for (const auto& [name, parents] : chapters()) {
    const auto is_parent = [&](const std::string& chapter) {
      return parents.find(chapter) != parents.npos;
    };
    if (name == first || std::any_of(found.begin(), found.end(), is_parent)) found.push_back(name);
  }
  if (found.empty()) throw std::logic_error("no chapter " + std::string(first));
  return found;
}

std::vector<std::string> some_chapters_from(std::string_view first) {
  std::vector<std::string> all = {std::string(first), "13_3d_parallel", "38_pretrain"};
  std::erase_if(all,
                [](const std::string& name) { return !fs::exists(LADDER_PROGRAMS "/ch" + name); });
  return all;
}

std::vector<std::string> with_each(const std::vector<std::string>& some, const std::string& text) {
  std::vector<std::string> choices, all;
  std::istringstream in(text);
  static const std::regex range("([0-9]+)\\.\\.([0-9]+)");
  for (std::string choice; std::getline(in, choice, '|');) {
    std::smatch ends;
    if (!std::regex_search(choice, ends, range)) {
      choices.push_back(choice);
      continue;
    }
    for (int i = std::stoi(ends[1]); i <= std::stoi(ends[2]); ++i)
      choices.push_back(ends.prefix().str() + std::to_string(i) + ends.suffix().str());
  }
  for (const std::string& flags : some)
    for (const std::string& choice : choices) all.push_back(flags + " " + choice);
  return all;
}

std::vector<std::string> listed_files(std::string_view list) {
  std::vector<std::string> files;
  std::istringstream in{std::string(list)};
  for (std::string file; std::getline(in, file, '|');) files.push_back(file);
  return files;
}

std::vector<std::string> table_lines(const fs::path& file) {
  std::ifstream in(file);
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);)
    if (!line.empty() && line[0] != '#') lines.push_back(line);
  return lines;
}

std::vector<std::string> words(std::string_view line) {
  std::istringstream stream{std::string(line)};
  std::vector<std::string> all;
  for (std::string word; stream >> word;) all.push_back(word);
  return all;
}

Program under_mpirun(std::string_view chapter, int processes) {
  // Ranks may be more than cores, and then give them way.
  const std::string mpirun =
      "mpirun --oversubscribe --bind-to none --mca mpi_yield_when_idle 1 -n ";
  return {chapter, words(mpirun + std::to_string(processes))};
}

Program signalled(Program program, const std::string& signals, const std::string& file) {
  // With job control SIGINT is not ignored when the run begins; not to the end, or bash would tell
  // of it.
  const std::string script =
      "set -m; \"$@\" & run=$!; set +m\n"
      "until [ -s " +
      file + " ]; do kill -0 $run || break; sleep 0.02; done\n" + signals + "\nwait $run";
  const std::vector<std::string> shell = {"bash", "-c", script, "bash"};
  program.launcher.insert(program.launcher.begin(), shell.begin(), shell.end());
  return program;
}

std::vector<std::string> small_run(std::string_view flags) {
  const std::vector<std::pair<std::string, std::string>> defaults = {
      {"--data", "text.txt"}, {"--model", "nano"}, {"--batch", "4"},
      {"--steps", "3"},       {"--threads", "1"},  // ctest runs a test on each core
  };
  std::vector<std::string> args = words(flags);
  for (const auto& [flag, value] : defaults)
    if (std::find(args.begin(), args.end(), flag) == args.end())
      args.insert(args.end(), {flag, value});
  // A test may save where its run before has saved.
  if (std::find(args.begin(), args.end(), "--save") != args.end()) args.push_back("--overwrite");
  return args;
}

Programs::Programs() {
  // Root may start processes in a container.
  for (const char* name : {"OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"})
    setenv(name, "1", /*overwrite=*/0);
  fs::create_directory(home_ / "run");
  write("text.txt", small_text());
}

fs::path Programs::path(std::string_view name) const { return fs::path(home_ / "run") / name; }

void Programs::write(std::string_view name, const std::string& bytes) const {
  write_file(path(name), bytes);
}

std::string Programs::read(std::string_view name) const { return read_file(path(name)); }

std::vector<std::string> Programs::text_lines(std::string_view name) const {
  std::istringstream text(read(name));
  std::vector<std::string> all;
  for (std::string line; std::getline(text, line);) all.push_back(line);
  return all;
}

std::vector<nlohmann::json> Programs::json_lines(std::string_view name) const {
  std::vector<nlohmann::json> all;
  for (const std::string& line : text_lines(name)) all.push_back(nlohmann::json::parse(line));
  return all;
}

std::map<std::string, std::string> Programs::files() const { return files_in(home_ / "run"); }

Ended Programs::run(const Program& program, const std::vector<std::string>& args) const {
  const std::string out = home_ / "out", err = home_ / "err";
  FileActions actions;
  actions.enter(path(""));
  actions.redirect(STDIN_FILENO, home_ / "in");
  actions.redirect(STDOUT_FILENO, out);
  actions.redirect(STDERR_FILENO, err);
  std::vector<std::string> command = program.launcher;
  command.push_back(LADDER_PROGRAMS "/ch" + program.chapter);
  command.insert(command.end(), args.begin(), args.end());
  const int status = spawn(std::move(command), actions);
  return {.status = status, .out = read_file(out), .err = read_file(err)};
}

Ended Programs::succeed(const Program& program, std::string_view line) const {
  Ended ended = run(program, words(line));
  EXPECT_EQ(ended.status, 0) << program.chapter << " " << line << "\n" << ended.err;
  return ended;
}

Ended Programs::train(const Program& program, std::string_view flags) const {
  Ended ended = run(program, small_run(flags));
  // A fault may leave nothing to learn from.
  const bool faulty = flags.find("--fault ") != flags.npos && ended.status == kNotDone;
  EXPECT_TRUE(ended.status == status_ || faulty)
      << "status " << ended.status << " of " << program.chapter << " " << flags << "\n"
      << ended.err;
  return ended;
}

void Programs::expect_refused(const Program& program, std::string_view flags,
                              std::string_view says) const {
  const Ended ended = run(program, small_run(flags));
  EXPECT_EQ(ended.status, 2) << flags;
  EXPECT_NE(ended.err.find(says), std::string::npos) << ended.err << "\n" << says;
}

nlohmann::json Programs::report(const Program& program, std::string_view flags) const {
  train(program, std::string(flags) + " --report report.json");
  return nlohmann::json::parse(read("report.json"));
}

}  // namespace ladder::test
