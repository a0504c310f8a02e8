// Lines of files, documents as JSON, and records beyond the memory limit.
#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "common/data/line_files.h"
#include "common/data/sorted_records.h"
#include "common/json_document.h"
#include "common/random.h"
#include "tests/common/run_files.h"

namespace ladder::test {
namespace {

class CorpusFiles : public ::testing::Test {
 protected:
  std::string write(const std::string& name, const std::string& bytes) const {
    write_file(directory_ / name, bytes);
    return directory_ / name;
  }
  /// All lines, "<long>" for those that are longer than is legal; and they are numbered.
  static std::vector<std::string> lines(LineFiles& files) {
    std::vector<std::string> all;
    for (LinePart part; files.next(part);) {
      EXPECT_EQ(part.ordinal, std::ssize(all));
      for (size_t i = 0; i < part.lines.size(); ++i)
        all.emplace_back(part.lines[i].too_long ? "<long>" : part.line(i));
    }
    return all;
  }
  TempDir directory_;
};

TEST_F(CorpusFiles, LinesAreWholeWhereverAPartEnds) {
  std::string text;
  std::vector<std::string> want;
  for (size_t i = 0; text.size() < 5 << 20; ++i) {
    want.emplace_back(i * 7919 % 4001 * (i % 50 == 0 ? 300 : 1), static_cast<char>('a' + i % 26));
    text += want.back() + "\n";
  }
  want.emplace_back("the end");
  want.emplace_back("b");
  text += "the end";
  LineFiles files({write("a", text), write("none", ""), write("b", "b\n")}, "--data", 1 << 30);
  EXPECT_EQ(lines(files), want);
  files.rewind();
  EXPECT_EQ(lines(files), want);
}

TEST_F(CorpusFiles, ALongLineIsPassedOverInSmallMemory) {
  const std::string too_long(5 << 20, 'x');
  for (const std::string& text : {"a\n" + too_long + "\nb\nc\n", too_long + "\na\n",
                                  "a\n" + too_long, std::string("a\nbbbb\nc")}) {
    LineFiles files({write("a", text)}, "--data", 3);
    for (const std::string& line : lines(files)) EXPECT_LE(line.size(), line == "<long>" ? 6u : 3u);
  }
  LineFiles files({write("a", "a\n" + too_long + "\nb\nc\nlong\n")}, "--data", 3);
  EXPECT_EQ(lines(files), (std::vector<std::string>{"a", "<long>", "b", "c", "<long>"}));
}

TEST(JsonDocuments, AreReadOrSayWhatIsWrong) {
  JsonDocument document;
  EXPECT_EQ(read_document(R"({"a":[{"text":1}],"text":"x\ny","id":12,"source":"web","z":null})",
                          document),
            "");
  EXPECT_EQ(document.text + "|" + document.id + "|" + document.source, "x\ny|12|web");
  const std::string digits = "123456789012345678901234567890";
  EXPECT_EQ(read_document(R"({"text":"","id":)" + digits + "}", document), "");
  EXPECT_EQ(document.id, digits);
  EXPECT_EQ(read_document(R"({"text":"","id":null})", document), "");
  EXPECT_EQ(document.text + "|" + document.id + "|" + document.source, "||");
  for (const auto& [line, says] : {std::pair<std::string, const char*>{"", "malformed"},
                                   {"{\"text\":\"a\"", "malformed"},
                                   {"{\"text\":\"\xFF\"}", "invalid UTF-8 at byte 10"},
                                   {R"({"text":"\ud800"})", "malformed"},
                                   {R"({"text":"a"} x)", "malformed"},
                                   {R"(["text"])", "no object"},
                                   {"1", "no object"},
                                   {"\"text\"", "no object"},
                                   {R"({"id":"a"})", "no \"text\""},
                                   {R"({"text":null})", "\"text\" is null"},
                                   {R"({"text":1})", "\"text\" is a number"},
                                   {R"({"text":{"text":"a"}})", "\"text\" is an object"},
                                   {R"({"id":[],"text":"a"})", "\"id\" is an array"},
                                   {R"({"id":1.5,"text":"a"})", "\"id\" is a number"},
                                   {R"({"source":true,"text":"a"})", "\"source\" is a Boolean"},
                                   {R"({"text":"a","text":"a"})", "\"text\" twice"}}) {
    const std::string wrong = read_document(line, document);
    EXPECT_NE(wrong.find(says), std::string::npos) << line << ": " << wrong;
  }
}

TEST_F(CorpusFiles, RecordsBeyondTheLimitComeInOrder) {
  const Random random(1, "records");
  std::vector<uint64_t> want;
  for (uint64_t i = 0; i < 20000; ++i) want.push_back(random.below(5000, i));
  for (const int64_t limit : {8 << 10, 40 << 10, 1 << 20}) {
    SortedRecords<uint64_t> records(limit, directory_.path());
    records.add(std::span(want).first(3000));
    records.add(std::span(want).subspan(3000));
    EXPECT_EQ(records.size(), 20000);
    EXPECT_EQ(records.spilled_bytes() > 0, limit < 1 << 20);
    EXPECT_TRUE(std::filesystem::is_empty(directory_.path()));
    std::vector<uint64_t> found, sorted = want;
    records.take([&](uint64_t record) { found.push_back(record); });
    std::ranges::sort(sorted);
    EXPECT_EQ(found, sorted);
  }
  SortedRecords<uint64_t> nowhere(0, directory_ / "none");
  const std::string wrong = user_error([&] { nowhere.add(want); });
  EXPECT_NE(wrong.find("--memory-limit"), std::string::npos) << wrong;
}

}  // namespace
}  // namespace ladder::test
