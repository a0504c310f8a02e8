// What the program refuses: one line, status 2, and nothing is lost.
#include <algorithm>
#include <filesystem>
#include <string>

#include "tests/25_corpus/corpora.h"
#include "tests/common/refusal.h"

namespace ladder::test {
namespace {

class CorpusRefuses : public Refusals {};
INSTANTIATE_TEST_SUITE_P(Program, CorpusRefuses, ::testing::Values("25_corpus"), chapter_name);

TEST_P(CorpusRefuses, BadInput) {
  write("a.jsonl", "{\"text\":\"a\"}\n");
  write("bad.jsonl", "{\"text\":\"a\"}\n\n{\"text\":\"\xFF\"}\n");
  write("long.jsonl", "{\"text\":\"" + std::string(700000, 'a') + "\"}\n");
  std::filesystem::create_directory(path("x"));
  write("x/a.jsonl", "{\"text\":\"b\"}\n");
  write("b.partial", "{\"text\":\"b\"}\n");
  write("o.jsonl", "old");
  for (const auto& [line, says] : refused_rows(LADDER_REFUSED, GetParam()))
    expect_refused(words(line), says);
  expect_refused(words("--data a.jsonl --out " + std::string(300, 'x')), "File name too long");
}

using BadCorpus = Programs;

TEST_F(BadCorpus, AFullDiskLeavesWhatWasThere) {
  std::string text;
  for (const Planted& document : planted()) text += document.line();
  write("a.jsonl", text);
  write("o.jsonl", "old");
  // What fills no buffer is written by commit(). The disk has room for what becomes of b.jsonl, and
  // for what is removed.
  write("b.jsonl", "{\"text\":\"b\"}\n{\"text\":\"b\"}\n");
  write("c.jsonl", R"({"text":")" + std::string(2000, 'c') + "\"}\n");
  const std::map<std::string, std::string> before = files();
  const Program full("25_corpus", {"bash", "-c", R"(ulimit -f 1; exec "$@")", "bash"});
  for (const char* line : {"--data a.jsonl --out o.jsonl",
                           "--data a.jsonl --out o.jsonl --dedup near --memory-limit 64KB",
                           "--data a.jsonl --out o.jsonl --removed gone --filter gopher",
                           "--data b.jsonl c.jsonl --out o.jsonl --removed gone"}) {
    const Ended ended = run(full, words(line));
    EXPECT_EQ(ended.status, 2) << line << "\n" << ended.err;
    EXPECT_EQ(std::ranges::count(ended.err, '\n'), 1) << line << "\n" << ended.err;
    EXPECT_EQ(files(), before) << line;
  }
}

}  // namespace
}  // namespace ladder::test
