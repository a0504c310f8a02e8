// Files of documents for the tests of chapter 27: a directory, and pairs X.bin and X.idx in it.
#pragma once

#include <string>
#include <vector>

#include "chapters/27_data_order/data_order.h"
#include "tests/26_packing/document_pair.h"
#include "tests/common/run_files.h"

namespace ladder {

class DocumentFiles : public ::testing::Test {
 protected:
  static constexpr int64_t kT = 8, kVocab = 1000;

  DocumentFiles() {
    run_.data = home_ / "none.bin";
    run_.tokens = TokenKind::Uint16;
    run_.format = {.width = 2};
    packing_.documents = true;
    packing_.window = 16;
    packing_.row_documents = 3;
  }

  /// X.bin with documents of so many tokens, X.idx beside it. The first token of each is its
  /// number, from `first` on.
  void write(const std::string& name, const std::vector<int64_t>& lengths, uint32_t first) const {
    std::vector<std::vector<uint32_t>> documents;
    for (const int64_t length : lengths)
      documents.emplace_back(static_cast<size_t>(length), first++ % kVocab);
    write_documents(home_ / name, documents);
  }

  /// Flags as the command line gives them; files lie in the directory of the test.
  SourceOptions look(const std::vector<std::string>& given, int64_t epochs = 0) {
    SourceOptions sources;
    sources.epochs = epochs;
    for (const std::string& source : given) sources.given.push_back(home_ / source);
    sources.find_files(run_, packing_);
    return sources;
  }
  OrderPlace place(const SourceOptions& sources) const { return {sources, packing_, kT, 1}; }
  DataOrder open(const SourceOptions& sources) const {
    GptConfig gpt = preset("nano");
    gpt.seq_len = kT;
    gpt.vocab = kVocab;
    return {sources, packing_, run_, gpt};
  }

  TempDir home_;
  RunOptions run_;
  PackOptions packing_;
};

}  // namespace ladder
