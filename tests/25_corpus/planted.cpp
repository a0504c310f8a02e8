// What is planted is found, and which documents stay depends on no thread, rank, shard or order.
#include <algorithm>
#include <filesystem>
#include <map>
#include <numeric>
#include <set>
#include <string>

#include "common/checksum.h"
#include "tests/25_corpus/corpora.h"
#include "tests/common/run_files.h"

namespace ladder::test {
namespace {

class Corpus : public Programs {
 protected:
  Corpus() : all_(planted()) {
    write("all.jsonl", text(all_));
    std::filesystem::create_directory(path("x"));
  }
  static std::string text(const std::vector<Planted>& documents) {
    std::string lines;
    for (const Planted& document : documents) lines += document.line();
    return lines;
  }
  static std::string kept_set(const Ended& ended) {
    const size_t at = ended.out.find("kept set ");
    return at == std::string::npos ? "none" : ended.out.substr(at, 41);
  }
  /// Groups of the documents in a file, ascending.
  std::vector<int> groups_in(const std::string& name) const {
    std::vector<int> groups;
    for (const nlohmann::json& line : json_lines(name))
      for (const Planted& document : all_)
        if (document.id == line.at("id").get<std::string>()) groups.push_back(document.group);
    std::ranges::sort(groups);
    return groups;
  }

  std::vector<Planted> all_;
};

TEST_F(Corpus, OneOfEachPlantedGroupStays) {
  succeed("25_corpus", "--data all.jsonl --out near.jsonl --removed gone.jsonl --dedup near");
  std::vector<int> each(static_cast<size_t>(all_.back().group) + 1);
  std::iota(each.begin(), each.end(), 0);
  EXPECT_EQ(groups_in("near.jsonl"), each);
  EXPECT_EQ(groups_in("near.jsonl").size() + groups_in("gone.jsonl").size(), all_.size());
  // A survivor is named by source and id. The hash of its text is the least of its group.
  std::map<nlohmann::json, Hash128> kept;
  for (const nlohmann::json& line : json_lines("near.jsonl"))
    kept[{{"source", line.at("source")}, {"id", line.at("id")}}] =
        hash128(line.at("text").get<std::string>());
  for (const nlohmann::json& line : json_lines("gone.jsonl")) {
    ASSERT_TRUE(kept.contains(line.at("survivor"))) << line;
    EXPECT_LE(kept[line.at("survivor")], hash128(line.at("text").get<std::string>()));
  }
}

TEST_F(Corpus, ShortTextsHaveNoBandsAndASurvivorWithoutIdHasALine) {
  write("a.jsonl", "{\"text\":\"a b c d e\"}\n{\"text\":\"a\"}\n{\"text\":\"a\"}\n");
  const Ended ended =
      succeed("25_corpus", "--data a.jsonl --out o.jsonl --removed gone.jsonl --dedup near");
  EXPECT_NE(ended.out.find("records: 408 bytes predicted, 408 measured"), std::string::npos);
  ASSERT_EQ(json_lines("gone.jsonl").size(), 1u);
  EXPECT_EQ(json_lines("gone.jsonl")[0].at("survivor").dump(), R"({"file":"a.jsonl","line":2})");
}

TEST_F(Corpus, OfEqualTextsTheLeastSourceAndIdStays) {
  succeed("25_corpus", "--data all.jsonl --out exact.jsonl");
  std::map<std::string, std::pair<std::string, std::string>> least;
  for (const Planted& d : all_) {
    const auto [at, is_new] = least.try_emplace(d.text, d.source, d.id);
    if (!is_new) at->second = std::min(at->second, {d.source, d.id});
  }
  const std::vector<nlohmann::json> stay = json_lines("exact.jsonl");
  EXPECT_EQ(stay.size(), least.size());
  for (const nlohmann::json& line : stay)
    EXPECT_EQ(least.at(line.at("text")),
              std::pair(line.at("source").get<std::string>(), line.at("id").get<std::string>()));
}

/// The ids that stay if the first of each group stays that streams by.
std::set<std::string> first_that_streams_by(const std::vector<Planted>& documents) {
  std::set<int> met;
  std::set<std::string> ids;
  for (const Planted& document : documents)
    if (met.insert(document.group).second) ids.insert(document.id);
  return ids;
}

TEST_F(Corpus, TheSameDocumentsStayOnEveryLayout) {
  std::vector<Planted> shuffled = all_;
  Planter planter;
  for (size_t i = shuffled.size(); i > 1; --i)
    std::swap(shuffled[i - 1], shuffled[planter.below(i)]);
  const auto middle = shuffled.begin() + 77;
  write("shuffled.jsonl", text(shuffled));
  write("x/a.jsonl", text({shuffled.begin(), middle}));
  write("x/b.jsonl", text({middle, shuffled.end()}));
  for (const std::string dedup : {"exact", "near"}) {
    const std::string flags = "--filter repetition --out o.jsonl --dedup " + dedup;
    const std::string want = kept_set(succeed("25_corpus", "--data all.jsonl " + flags));
    for (const char* layout :
         {"--data shuffled.jsonl", "--data all.jsonl --threads 3",
          "--data all.jsonl --ranks 3 --threads 2", "--data x/b.jsonl x/a.jsonl --ranks 8",
          "--data x/a.jsonl x/b.jsonl --memory-limit 64KB",
          "--data shuffled.jsonl --ranks 2 --memory-limit 64KB"})
      EXPECT_EQ(kept_set(succeed("25_corpus", std::string(layout) + " " + flags)), want) << layout;
    EXPECT_NE(kept_set(succeed("25_corpus", "--data x/a.jsonl " + flags)), want);
  }
  EXPECT_NE(first_that_streams_by(all_), first_that_streams_by(shuffled));
}

TEST_F(Corpus, ProcessesKeepTheSameDocuments) {
  const std::string flags = "--data all.jsonl --out o.jsonl --dedup near";
  const std::string want = kept_set(succeed("25_corpus", flags));
  const std::string file = read("o.jsonl");
  const Ended ended = run(under_mpirun("25_corpus", 2), words(flags));
  if (ended.err.find("built without MPI") != std::string::npos)
    GTEST_SKIP() << "no MPI in this build";
  EXPECT_EQ(kept_set(ended), want) << ended.err;
  EXPECT_EQ(read("o.jsonl"), file);
}

TEST_F(Corpus, LinesStayAsTheyWere) {
  write("x/a.jsonl", "{\"text\": \"an  odd\\u0020line\", \"more\": [1, {}]}\n\n");
  write("x/b.jsonl", "{\"text\":\"the last line has no end\"}");
  succeed("25_corpus", "--data x/a.jsonl x/b.jsonl --out o.jsonl --dedup none");
  EXPECT_EQ(read("o.jsonl"),
            read("x/a.jsonl").substr(0, read("x/a.jsonl").size() - 1) + read("x/b.jsonl") + "\n");
  succeed("25_corpus", "--data x/a.jsonl --out o.jsonl --filter gopher --removed gone.jsonl");
  EXPECT_EQ(read("o.jsonl"), "");
  EXPECT_EQ(read("gone.jsonl"),
            "{\"removed_by\":\"gopher.few_words\",\"text\": \"an  odd\\u0020line\", \"more\": [1, "
            "{}]}\n");
}

TEST_F(Corpus, OfALineOnlyTheTextChangesWhereC4DeletesLines) {
  const std::string line = R"(end here, as lines of C4 do.\n)";
  const std::string full = line + line + line + line + "And so \\u00e9.";
  const std::string rest = R"( "n": 1.50e2, "deep": {"text": ["x\u0020", {}]}, "id":)";
  write("a.jsonl", "{" + rest + "1, \"text\" : \"Home\\n" + full + "\"}\n{\"id\":0,\"text\":\"" +
                       full + "\\nMore \"}\n{\"text\":\"Home\"}\n");
  std::string want;
  for (const std::string layout : {"", " --threads 2", " --ranks 3"}) {
    const Ended ended = succeed("25_corpus", "--data a.jsonl --out o.jsonl --filter c4" + layout);
    // The texts are equal now, and "0" is the lesser id.
    EXPECT_EQ(nlohmann::json::parse(read("o.jsonl"))["text"].get<std::string>().size(), 126U);
    for (const char* row :
         {"read                                     0           3            267",
          "c4: lines deleted                        0           3            252",
          "c4.sentences                             1           2            252",
          "exact                                    1           1            126"})
      EXPECT_NE(ended.out.find(row), std::string::npos) << row << "\n" << ended.out;
  }
  succeed("25_corpus", "--data a.jsonl --out o.jsonl --filter c4 --dedup none");
  EXPECT_EQ(read("o.jsonl").substr(0, read("o.jsonl").find('\n')),
            "{" + rest +
                "1, \"text\" : " + nlohmann::json(json_lines("o.jsonl")[0]["text"]).dump() + "}");
}

TEST_F(Corpus, HeldOutTextIsRemoved) {
  Planter planter;
  const std::vector<std::string> test = planter.words(60);
  std::vector<std::string> has = planter.words(90), almost = has;
  std::copy_n(test.begin() + 20, 13, has.begin() + 30);
  std::copy_n(test.begin() + 20, 12, almost.begin() + 30);
  const auto line = [](const char* id, const std::vector<std::string>& of) {
    return Planted{id, "", Planter::text(of), 0}.line();
  };
  write("test.jsonl", line("t", test) + line("u", planter.words(50)) + line("v", {"too", "short"}));
  write("a.jsonl", line("has", has) + line("almost", almost) + line("none", planter.words(50)));
  for (const std::string layout : {"", " --threads 2", " --ranks 2"}) {
    const Ended ended =
        succeed("25_corpus",
                "--data a.jsonl --held-out test.jsonl --out o.jsonl --removed gone.jsonl" + layout);
    EXPECT_NE(
        ended.out.find(
            "1 of 3 held-out texts were found; 1 are too short to be found; 1 are in no document"),
        std::string::npos)
        << ended.out;
    ASSERT_EQ(json_lines("gone.jsonl").size(), 1u);
    EXPECT_EQ(json_lines("gone.jsonl")[0].at("id"), "has");
    EXPECT_EQ(json_lines("gone.jsonl")[0].at("removed_by"), "held_out");
    EXPECT_EQ(json_lines("o.jsonl").size(), 2u);
  }
}

// C4 deletes the lines before the last, in which the 13 words are; and each of two equal texts is
// found.
TEST_F(Corpus, HeldOutTextIsLookedForInTheWholeText) {
  Planter planter;
  std::string text;
  for (const std::string& word : planter.words(60))
    text += word + (text.size() % 5 == 0 ? "\n" : " ");
  std::string held = Planted{"t", "", text, 0}.line();
  write("test.jsonl", held + held);
  for (int i = 0; i < 5; ++i) text += "\nThis line stays, " + std::to_string(i) + " as it is.";
  write("a.jsonl", Planted{"a", "", text, 0}.line());
  const Ended ended =
      succeed("25_corpus", "--data a.jsonl --held-out test.jsonl --out o.jsonl --filter c4");
  EXPECT_NE(
      ended.out.find(
          "2 of 2 held-out texts were found; 0 are too short to be found; 0 are in no document"),
      std::string::npos)
      << ended.out;
  EXPECT_EQ(read("o.jsonl"), "");
}

TEST_F(Corpus, TheFunnelSumsUp) {
  write("a.jsonl",
        "{\"text\":\"\"}\n{\"text\":\" \\n\"}\n\n{\"text\":\"one {.\"}\n{\"text\":\"a "
        "b\"}\n{\"text\":\"a b\"}\n");
  const Ended ended = succeed("25_corpus", "--data a.jsonl --out o.jsonl --ranks 2");
  for (const char* row : {"read                                     0           5             14",
                          "empty                                    2           3             12",
                          "exact                                    1           2              9"})
    EXPECT_NE(ended.out.find(row), std::string::npos) << row << "\n" << ended.out;
}

}  // namespace
}  // namespace ladder::test
