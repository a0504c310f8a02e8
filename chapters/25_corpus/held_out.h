// Contamination: a model must not be trained on text that it is to be tested on.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "chapters/25_corpus/minhash.h"
#include "common/comm/comm.h"
#include "common/data/json_document.h"
#include "common/data/line_files.h"
#include "common/run/command_line.h"
#include "common/tokens/pair_map.h"

namespace ladder {

struct HeldOutOptions {
  std::vector<std::string> files;
  int64_t words = 13;  ///< as GPT-3, arXiv 2005.14165, appendix C

  void add_to(CommandLine& line) {
    line.group("25_corpus: held-out text");
    line.add("--held-out", files, "lines of JSON: documents that share words with one of them go");
    line.add("--held-out-words", words, "words in a row that a document must share to be removed",
             {.needs = {"--held-out"}});
  }
  /// @throws UserError
  void check() const { require_range("--held-out-words", words, 1, 64); }
};

class HeldOut {
 public:
  /// @throws UserError at a line that is no document, or has more than `longest_line` bytes
  HeldOut(const HeldOutOptions& options, int64_t longest_line)
      : words_(static_cast<size_t>(options.words)) {
    LineFiles lines(options.files, "--held-out", longest_line);
    JsonDocument document;
    for (LinePart part; lines.next(part);) {
      for (size_t i = 0; i < part.lines.size(); ++i) {
        if (part.lines[i].too_long)
          throw UserError("{} is longer than --memory-limit; legal are up to {} bytes",
                          lines.name_of(part, i), longest_line);
        if (part.line(i).find_first_not_of(" \t\r") == std::string_view::npos) continue;
        const std::string wrong = read_document(part.line(i), document);
        if (!wrong.empty()) throw UserError("{}: {}", lines.name_of(part, i), wrong);
        add(PlainWords(document.text));
      }
    }
    met_.resize(static_cast<size_t>(texts_));
  }
  int64_t texts() const { return texts_; }
  int64_t short_texts() const { return short_texts_; }  ///< with too few words to be found

  /// Whether a held-out text has --held-out-words words in a row in common with `words`. Several
  /// threads may ask.
  bool is_in(const PlainWords& words) {
    bool found = false;
    for (size_t i = 0; i + words_ <= words.size(); ++i) {
      const uint32_t* text = grams_.find(key(words, i));
      if (!text) continue;
      std::atomic_ref(met_[*text]).store(1, std::memory_order_relaxed);
      found = true;
    }
    return found;
  }
  /// Held-out texts that were found on any rank. All ranks call it.
  int64_t met(Comm& comm) {
    comm.all_reduce({.ptr = met_.data(), .dtype = Dtype::U8, .shape = {std::ssize(met_)}},
                    Combine::Max);
    return std::ranges::count(met_, 1);
  }

 private:
  // 63 bits, because a PairMap reserves the largest key of 64.
  uint64_t key(const PlainWords& words, size_t i) const {
    return hash64(words.gram(i, words_)) >> 1;
  }
  void add(const PlainWords& words) {
    short_texts_ += words.size() < words_;
    for (size_t i = 0; i + words_ <= words.size(); ++i)
      grams_[key(words, i)] = static_cast<uint32_t>(texts_);
    ++texts_;
  }

  size_t words_;
  PairMap<uint32_t> grams_;   ///< the last text that has this gram
  std::vector<uint8_t> met_;  ///< of each text, whether it was found
  int64_t texts_ = 0, short_texts_ = 0;
};

}  // namespace ladder
