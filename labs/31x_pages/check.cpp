// Texts that begin alike, grow and end, in a cache of pages: what each reads, how many pages there
// are, and when a text is refused.
#include "labs/check.h"

#include <algorithm>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "labs/31x_pages/pages.h"

namespace ladder::lab {
namespace {

/// "grow 1 40", "share 1 36 0" (the first 36 tokens of text 0), "end 1".
struct Action {
  explicit Action(const std::string& line) {
    std::istringstream words(line);
    words >> what >> text >> n >> from;
  }
  std::string what;
  int64_t text = 0, n = 0, from = 0;
};

/// What each text has, written down: a page is known by the text that wrote it and its number
/// there.
struct Model {
  int64_t used() const {
    std::set<int64_t> all;
    for (const auto& [text, pages] : texts) all.insert(pages.begin(), pages.end());
    return std::ssize(all);
  }
  std::string act(const Action& a, int64_t most) {
    std::vector<int64_t>& pages = texts[a.text];
    const int64_t wanted = (a.n + kPageTokens - 1) / kPageTokens;
    if (a.what == "end") pages.clear();
    if (a.what == "end") return "ended";
    if (a.what == "share") {
      const std::vector<int64_t>& whole = texts[a.from];
      pages.assign(whole.begin(), whole.begin() + a.n / kPageTokens);
      return fmt::format("has {} tokens", a.n / kPageTokens * kPageTokens);
    }
    if (used() + wanted - std::ssize(pages) > most) return "refused";
    while (std::ssize(pages) < wanted) pages.push_back(++last);
    return "grown";
  }

  std::map<int64_t, std::vector<int64_t>> texts;
  int64_t last = 0;
};

/// A cache whose rows are numbers, with the student's table.
struct Cache {
  explicit Cache(int64_t pages)
      : table(pages), rows(static_cast<size_t>(pages * kPageTokens), -1) {}

  int64_t& row(int64_t text, int64_t t) {
    return rows.at(static_cast<size_t>(table.row_of(text, t)));
  }
  std::string act(const Action& a) {
    std::vector<int64_t>& mine = texts[a.text];
    if (a.what == "end") {
      table.release(a.text);
      mine.clear();
      return "ended";
    }
    if (a.what == "share") {
      const int64_t had = table.share(a.text, a.from, a.n);
      const auto begin = texts[a.from].begin();
      mine.assign(begin, begin + std::clamp<int64_t>(had, 0, a.n));
      return fmt::format("has {} tokens", had);
    }
    if (!table.grow(a.text, a.n)) return "refused";
    for (int64_t t = std::ssize(mine); t < a.n; ++t) {
      mine.push_back(++written);
      row(a.text, t) = written;
    }
    return "grown";
  }
  /// Whether all texts read what they have written.
  std::string read() {
    for (const auto& [text, mine] : texts)
      for (int64_t t = 0; t < std::ssize(mine); ++t)
        if (row(text, t) != mine[static_cast<size_t>(t)])
          return fmt::format("text {} reads another token at {}", text, t);
    return "right";
  }
  int64_t pages() {
    std::set<int64_t> all;
    for (const auto& [text, mine] : texts)
      for (int64_t t = 0; t < std::ssize(mine); ++t)
        all.insert(table.row_of(text, t) / kPageTokens);
    return std::ssize(all);
  }

  PageTable table;
  std::vector<int64_t> rows;
  std::map<int64_t, std::vector<int64_t>> texts;
  int64_t written = 0;
};

void run_case(Sheet& sheet, int64_t most, const std::string& lines) {
  std::istringstream text(lines);
  std::vector<std::string> actions;
  for (std::string line; std::getline(text, line, ';');) actions.push_back(line);
  sheet.wanted([&] {
    Model model;
    int64_t pages = 0;
    for (const std::string& line : actions) {
      const std::string answer = model.act(Action(line), most);
      pages += model.used();
      sheet.text("rows/" + line, "right");
      sheet.text("answers/" + line, answer);
    }
    sheet.count("pages", pages);
  });
  sheet.without_idea("pages", most * std::ssize(actions));
  Cache cache(most);
  int64_t pages = 0;
  for (const std::string& line : actions) {
    const std::string answer = cache.act(Action(line));
    sheet.text("rows/" + line, cache.read());
    sheet.text("answers/" + line, answer);
    pages += cache.pages();
  }
  sheet.count("pages", pages);
}

}  // namespace

void cases(Sheet& sheet) {
  const auto n = sheet.pick<int64_t>("tokens of a prompt", {37, 43, 46});
  const int64_t all = n + sheet.pick<int64_t>("tokens of an answer", {19, 23, 30});
  sheet.run("one text", [&] {
    run_case(
        sheet, 8,
        fmt::format("grow 0 1;grow 0 16;grow 0 17;grow 0 {};end 0;grow 1 128;end 1;grow 0 100", n));
  });
  sheet.run("three answers to a prompt", [&] {
    run_case(
        sheet, 10,
        fmt::format("grow 0 {0};share 1 {1} 0;grow 1 {0};grow 0 {2};share 2 {1} 1;grow 2 {0};"
                    "grow 1 {2};end 0;grow 3 40;end 1;grow 2 {2};end 3;grow 4 160;end 2;grow 4 160",
                    n, n - 1, all));
  });
  sheet.run("prompts that fill their pages, and less than one", [&] {
    run_case(sheet, 6,
             "grow 0 48;share 1 48 0;grow 1 50;share 2 32 0;grow 2 33;share 3 15 0;grow 3 15;end 0;"
             "grow 4 1;end 1;grow 4 16");
  });
  sheet.run("no room", [&] {
    run_case(
        sheet, 6,
        fmt::format(
            "grow 0 {0};grow 1 {1};grow 2 48;grow 1 16;end 2;grow 1 50;grow 1 48;end 0;grow 1 96",
            n, 2 * n));
  });
}

}  // namespace ladder::lab
