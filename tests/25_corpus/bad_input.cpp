// What the program refuses: one line, status 2, and nothing is lost.
#include <algorithm>
#include <filesystem>
#include <string>

#include "tests/25_corpus/corpora.h"

namespace ladder::test {
namespace {

class BadCorpus : public Programs {};

TEST_F(BadCorpus, IsRefusedInOneLine) {
  write("a.jsonl", "{\"text\":\"a\"}\n");
  write("bad.jsonl", "{\"text\":\"a\"}\n\n{\"text\":\"\xFF\"}\n{\"id\":1}\n");
  write("long.jsonl", "{\"text\":\"" + std::string(70000, 'a') + "\"}\n");
  // Bad lines in parts of two ranks.
  write("far.jsonl", "x\n{\"text\":\"" + std::string(300000, 'a') + "\"}\nx\n");
  write("x.zst", "no frame");
  std::filesystem::create_directory(path("x"));
  write("x/a.jsonl", "{\"text\":\"b\"}\n");
  write("o.jsonl", "old");
  const std::map<std::string, std::string> before = files();
  for (const auto& [line, says] :
       {std::pair<std::string, std::string>{"--out o.jsonl", "--data is missing"},
        {"--data a.jsonl", "--out is missing"},
        {"--data none.jsonl --out o.jsonl", "--data none.jsonl: no such file"},
        {"--data a.jsonl --out a.jsonl", "--out a.jsonl: would write in --data a.jsonl; legal is"},
        {"--data x/a.jsonl a.jsonl --out ./x/../a.jsonl", "would write in --data a.jsonl"},
        {"--data a.jsonl --out ./", "would write in --data a.jsonl"},
        {"--data a.jsonl --out o.jsonl --removed a.jsonl",
         "--removed a.jsonl: would write in --data"},
        {"--data a.jsonl --out o.jsonl --removed o.jsonl", "would write in --out o.jsonl"},
        {"--data a.jsonl --held-out x/a.jsonl --out x/", "would write in --held-out x/a.jsonl"},
        {"--data a.jsonl x/a.jsonl --out kept/", "two files of --data have the name a.jsonl"},
        {"--data a.jsonl --out none/o.jsonl", "none/o.jsonl: cannot be written"},
        {"--data a.jsonl --out o.jsonl --removed none/g", "none/g: cannot be written"},
        {"--data bad.jsonl --out o.jsonl",
         "--data bad.jsonl: line 3: malformed JSON or invalid UTF-8 at byte 10; --bad-lines 0"},
        {"--data bad.jsonl --out kept/", "line 3"},
        {"--data bad.jsonl --out o.jsonl --bad-lines 1",
         "--data bad.jsonl: line 4: no \"text\"; --bad-lines 1"},
        {"--data a.jsonl bad.jsonl --out o.jsonl --bad-lines 1 --ranks 3", "line 4"},
        {"--data far.jsonl --out o.jsonl --bad-lines 1 --ranks 2", "2 lines are no documents"},
        {"--data long.jsonl --out o.jsonl --memory-limit 64KB",
         "line 1: is longer than --memory-limit"},
        {"--data x.zst --out o.jsonl", "x.zst"},
        {"--data a.jsonl --out o.jsonl --held-out bad.jsonl", "--held-out bad.jsonl: line 3"},
        {"--data a.jsonl --out o.jsonl --held-out none", "--held-out none: no such file"},
        {"--data a.jsonl --out o.jsonl --filter gophers", "--filter"},
        {"--data a.jsonl --out o.jsonl --filter c4,gopher,c4", "--filter: c4 stands there twice"},
        {"--data a.jsonl --out o.jsonl --filter none,gopher",
         "--filter: none stands beside others"},
        {"--data a.jsonl --out o.jsonl --dedup fuzzy", "--dedup"},
        {"--data a.jsonl --out o.jsonl --bands 0", "--bands must be from 1"},
        {"--data a.jsonl --out o.jsonl --rows 2000", "--rows must be from 1"},
        {"--data a.jsonl --out o.jsonl --shingle 0", "--shingle must be from 1"},
        {"--data a.jsonl --out o.jsonl --held-out-words 0", "--held-out-words must be from 1"},
        {"--data a.jsonl --out o.jsonl --memory-limit 1KB", "--memory-limit must be at least 64KB"},
        {"--data a.jsonl --out o.jsonl --bad-lines -1", "--bad-lines must be at least 0"},
        {"--data a.jsonl --out o.jsonl --threads 0", "--threads must be from 1"},
        {"--data a.jsonl --out o.jsonl --tokenizer none", "none: no such file"}}) {
    const Ended ended = run("25_corpus", words(line));
    EXPECT_EQ(ended.status, 2) << line << "\n" << ended.err;
    EXPECT_EQ(std::ranges::count(ended.err, '\n'), 1) << line << "\n" << ended.err;
    EXPECT_NE(ended.err.find(says), std::string::npos) << line << "\n" << ended.err;
    EXPECT_EQ(files(), before) << line;
  }
}

TEST_F(BadCorpus, AFullDiskLeavesWhatWasThere) {
  std::string text;
  for (const Planted& document : planted()) text += document.line();
  write("a.jsonl", text);
  write("o.jsonl", "old");
  const std::map<std::string, std::string> before = files();
  const Program full("25_corpus", {"bash", "-c", R"(ulimit -f 1; exec "$@")", "bash"});
  for (const char* line : {"--data a.jsonl --out o.jsonl",
                           "--data a.jsonl --out o.jsonl --dedup near --memory-limit 64KB",
                           "--data a.jsonl --out o.jsonl --removed gone --filter gopher"}) {
    const Ended ended = run(full, words(line));
    EXPECT_EQ(ended.status, 2) << line << "\n" << ended.err;
    EXPECT_EQ(std::ranges::count(ended.err, '\n'), 1) << line << "\n" << ended.err;
    EXPECT_EQ(files(), before) << line;
  }
}

}  // namespace
}  // namespace ladder::test
