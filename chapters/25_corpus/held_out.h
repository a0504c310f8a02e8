// Contamination: a model must not be trained on text that it is to be tested on.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "chapters/25_corpus/minhash.h"
#include "common/comm/comm.h"
#include "common/data/line_files.h"
#include "common/json_document.h"
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
    met_.resize(grams_.size() + 1);
  }
  /// What has become of the texts. @param met as met()
  std::string summary(int64_t met) const {
    return fmt::format(
        "{} of {} held-out texts were found; {} are too short to be found; {} are in no document",
        met, ends_.size(), short_texts_, std::ssize(ends_) - short_texts_ - met);
  }

  /// Whether a held-out text has --held-out-words words in a row in common with `words`. Several
  /// threads may ask.
  bool is_in(const PlainWords& words) {
    bool found = false;
    for (size_t i = 0; i + words_ <= words.size(); ++i) {
      const uint32_t* gram = grams_.find(key(words, i));
      if (!gram) continue;
      std::atomic_ref(met_[*gram]).store(1, std::memory_order_relaxed);
      found = true;
    }
    return found;
  }
  /// Held-out texts that were found on any rank. All ranks call it.
  int64_t met(Comm& comm) {
    comm.all_reduce({.ptr = met_.data(), .dtype = Dtype::U8, .shape = {std::ssize(met_)}},
                    Combine::Max);
    int64_t texts = 0;
    for (size_t i = 0; i < ends_.size(); ++i) {
      const size_t begin = i > 0 ? ends_[i - 1] : 0;
      const auto grams = std::span(of_texts_).subspan(begin, ends_[i] - begin);
      texts += std::ranges::any_of(grams, [&](uint32_t gram) { return met_[gram] != 0; });
    }
    return texts;
  }

 private:
  // 63 bits, because a PairMap reserves the largest key of 64.
  uint64_t key(const PlainWords& words, size_t i) const {
    return hash64(words.gram(i, words_)) >> 1;
  }
  void add(const PlainWords& words) {
    short_texts_ += words.size() < words_;
    for (size_t i = 0; i + words_ <= words.size(); ++i) {
      uint32_t& gram = grams_[key(words, i)];
      if (gram == 0) gram = static_cast<uint32_t>(grams_.size());
      of_texts_.push_back(gram);
    }
    ends_.push_back(of_texts_.size());
  }

  size_t words_;
  PairMap<uint32_t> grams_;         ///< the number of each gram, from 1 on
  std::vector<uint8_t> met_;        ///< by this number, whether a document has the gram
  std::vector<uint32_t> of_texts_;  ///< the grams of all texts, one text after the other
  std::vector<size_t> ends_;        ///< where the grams of each text end
  int64_t short_texts_ = 0;         ///< with too few words to be found
};

}  // namespace ladder
