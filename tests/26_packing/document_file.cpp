// Where documents end: 24's pair of files read back, ends that tokens tell, and an index that lies.
#include "common/data/document_file.h"

#include <gtest/gtest.h>

#include "tests/26_packing/document_pair.h"
#include "tests/common/run_files.h"

namespace ladder {
namespace {

class DocumentFileTest : public ::testing::Test {
 protected:
  /// X.bin and X.idx with these documents.
  void write(const std::vector<std::vector<uint32_t>>& documents) {
    write_documents(bin_, documents);
  }
  DocumentFile open(std::optional<int64_t> end_of_text = {}, int64_t width = 2) const {
    return {{.path = bin_, .format = {.width = width}, .seq_len = 4, .vocab = 300}, end_of_text};
  }
  static std::vector<Range> all(const DocumentFile& file) {
    std::vector<Range> documents;
    for (int64_t i = 0; i < file.count(); ++i) documents.push_back(file.document(i));
    return documents;
  }
  /// The index with the byte at `at` changed.
  void damage(size_t at, char byte) const {
    std::string bytes = read_file(idx_);
    bytes.at(at) = byte;
    write_file(idx_, bytes);
  }

  TempDir home_;
  std::string bin_ = home_ / "x.bin", idx_ = home_ / "x.idx";
};

TEST_F(DocumentFileTest, ReadsThePairOfChapter24) {
  write({{5, 6, 299}, {}, {7}, {8, 9}});
  const DocumentFile file = open();
  EXPECT_EQ(all(file), (std::vector<Range>{{0, 3}, {3, 3}, {3, 4}, {4, 6}}));
  std::vector<int32_t> tokens(4);
  file.read(2, tokens);
  EXPECT_EQ(tokens, (std::vector<int32_t>{299, 7, 8, 9}));
}

TEST_F(DocumentFileTest, EndsThatTokensTell) {
  write({{5, 6, 1, 1}, {7, 1, 8}});
  EXPECT_EQ(all(open(1)), (std::vector<Range>{{0, 3}, {3, 4}, {4, 6}, {6, 7}}));
  write_file(bin_, "ab\ncd\n");
  EXPECT_EQ(all(open('\n', 1)), (std::vector<Range>{{0, 3}, {3, 6}}));
}

// Each number of the index, and both files too short or too long.
TEST_F(DocumentFileTest, RefusesAnIndexThatDisagrees) {
  const auto refused = [&](const std::string& part) { EXPECT_USER_ERROR(open(), part); };
  const auto fresh = [&] { write({{5, 6, 7}, {8, 9}}); };
  for (const auto& [at, byte, part] :
       {std::tuple{0, 'X', "it is no index of Megatron"},
        {9, '\2', "version 2, not 1"},
        {17, '\4', "tokens of type 4, not 8; --tokens says what the file has"},
        {18, '\3', "82 bytes for 3 documents"},
        {25, '\x80', "bytes for -"},
        {26, '\4', "some of its documents are several sequences"},
        {34, '\2', "a document from token 3 to 5 follows one that ends at 2"},
        {37, '\x80', "a document from token 0 to -2147483645 follows one that ends at 0"},
        {38, '\1', "it has 4 tokens, and the file 5"},
        {50, '\2', "a document from token 1 to 3 follows one that ends at 3"},
        {58, '\1', "document 0 begins with sequence 1, not 0"},
        {74, '\3', "document 2 begins with sequence 3, not 2"}}) {
    fresh();
    damage(static_cast<size_t>(at), byte);
    refused(part);
  }
  fresh();
  std::filesystem::resize_file(idx_, 30);
  refused("it is too short");
  fresh();
  std::filesystem::resize_file(idx_, 81);
  refused("81 bytes for 2 documents");
  fresh();
  std::filesystem::resize_file(bin_, 8);
  refused("it has 5 tokens, and the file 4");
  fresh();
  std::filesystem::remove(idx_);
  refused("--documents needs " + idx_ + " beside it");
  EXPECT_USER_ERROR(DocumentFile({.path = home_ / "gone.bin", .seq_len = 4, .vocab = 300}, {}),
                    "gone.bin");
}

TEST_F(DocumentFileTest, RefusesTokensOfALargerVocabulary) {
  write({{5, 6, 300}});
  std::vector<int32_t> tokens(3);
  EXPECT_USER_ERROR(open().read(0, tokens), "token 2 is 300");
}

}  // namespace
}  // namespace ladder
