// The tokenizer of a run (--tokenizer), the tokens of its text, and the number of bytes that the
// targets of a loss stand for.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/data/text.h"
#include "common/tokens/tokenizer.h"

namespace ladder {

struct GptConfig;
struct RunOptions;

/// A tokenizer, with what a run needs to know about it.
struct RunTokenizer {
  std::string path;  ///< what it was read from
  Tokenizer tokenizer;
  std::string hash;                                   ///< fingerprint()
  std::shared_ptr<const std::vector<int32_t>> bytes;  ///< of each token: token_bytes()
};

/// The tokenizer in `path`. If `path` is empty, the one beside the weights in the directory `load`;
/// null if there is none.
/// @throws UserError if a tokenizer cannot be read, or if `load` has another one than `path`
std::shared_ptr<const RunTokenizer> find_tokenizer(const std::string& path,
                                                   const std::string& load);

/// The tokens of the file `text`, and where documents end: after each line of a *.jsonl, or else at
/// the end of the file. @throws UserError
std::shared_ptr<const EncodedText> encode(const RunTokenizer& tokenizer, const std::string& text,
                                          int threads);

/// A line for the screen: the vocabulary, its tokenizer, and how many tokens --data has.
std::string tokens_text(const RunOptions& options);

/// Counts those of the sequences that Text draws.
LossTargets targets_of(const RunOptions& options, const GptConfig& gpt);

}  // namespace ladder
