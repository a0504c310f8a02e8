#include "tests/common/refusal.h"

#include <algorithm>

#include "kernels/check.h"
#include "tests/common/ranks.h"

namespace ladder::test {
namespace {

using Files = std::map<std::string, std::string>;

/// "+saved/ -old ~trace.jsonl": what was created, removed and changed.
std::string changes(const Files& before, const Files& after) {
  std::string all;
  for (const auto& [name, bytes] : after)
    if (!before.contains(name)) all += "+" + name + " ";
  for (const auto& [name, bytes] : before) {
    const auto now = after.find(name);
    if (now == after.end()) all += "-" + name + " ";
    if (now != after.end() && now->second != bytes) all += "~" + name + " ";
  }
  return all;
}

/// Of a line of a table without " => ".
std::vector<std::string> chapters_of_line(const std::string& line) {
  if (line.starts_with("from ")) return chapters_from(line.substr(5));
  if (line.starts_with("only ")) return words(line.substr(5));
  CHECK(line == "ranks", "neither a row nor 'from', 'only' or 'ranks': {}", line);
  return chapters_of(line);
}

}  // namespace

std::vector<BadInput> refused_rows(const std::string& file, const std::string& chapter) {
  std::vector<BadInput> rows;
  bool of_chapter = false;
  for (const std::string& line : table_lines(file)) {
    const size_t arrow = line.find(" => ");
    if (arrow == std::string::npos)
      of_chapter = std::ranges::count(chapters_of_line(line), chapter) > 0;
    else if (of_chapter)
      rows.push_back({line.substr(0, arrow), line.substr(arrow + 4)});
  }
  return rows;
}

Refusals::Refusals() {
  for (const char* name : {"trace.jsonl", "report.json", "timeline.json"})
    write(name, "of an earlier run\n");
}

void Refusals::expect_refused(const BadInput& input) const {
  std::vector<std::string> args = small_run(input.flags);
  const auto has = [&](const std::string& flag) {
    return std::find(args.begin(), args.end(), flag) != args.end();
  };
  const bool plan = has("--plan-only");  // which writes a report alone
  for (const auto& [flag, name] :
       {std::pair{"--report", "report.json"}, std::pair{"--trace", "trace.jsonl"},
        std::pair{"--timeline", "timeline.json"}, std::pair{"--save", "saved"}})
    if (!has(flag) && (!plan || flag == std::string("--report")))
      args.insert(args.end(), {flag, name});
  expect_refused(args, input.says);
}

void Refusals::expect_refused(const std::vector<BadInput>& inputs) const {
  for (const BadInput& input : inputs) expect_refused(input);
}

void Refusals::expect_refused(const std::vector<std::string>& args, std::string_view says) const {
  const auto before = files();
  const Ended ended = run(GetParam(), args);
  const auto after = files();

  std::string line = GetParam();
  for (const std::string& arg : args) line += " '" + arg + "'";
  SCOPED_TRACE(line + "\n" + ended.err);
  ASSERT_EQ(ended.status, 2);
  EXPECT_TRUE(ended.err.starts_with("error: "));
  EXPECT_TRUE(ended.err.find('\n') == ended.err.size() - 1) << "not one line";
  EXPECT_TRUE(ended.err.find(says) != std::string::npos) << "does not say " << says;
  EXPECT_EQ(changes(before, after), "");
}

}  // namespace ladder::test
