// The tokenizer of a run (--tokenizer), the file that keeps its text as tokens, and the bytes that
// the targets of a loss stand for.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/data/text.h"
#include "common/tokens/tokenizer.h"

namespace ladder {

struct GptConfig;
struct RunOptions;

/// A tokenizer, and what a run wants to know of it.
struct RunTokenizer {
  std::string path;  ///< what it was read from
  Tokenizer tokenizer;
  std::string hash;                                   ///< fingerprint()
  std::shared_ptr<const std::vector<int32_t>> bytes;  ///< token_bytes()
};

/// The tokenizer in `path`; if that is empty, the one that stands beside the weights in the
/// directory `load`. null: there is none in `load`.
/// @throws UserError if a tokenizer cannot be read, or if the one beside the weights is another
std::shared_ptr<const RunTokenizer> find_tokenizer(const std::string& path,
                                                   const std::string& load);

/// A text as a file of tokens.
struct KeptTokens {
  std::string path;
  int64_t width = 0;  ///< bytes of each
};

/// Encodes `text` and keeps its tokens in a folder for that: LADDER_CACHE of the environment, or
/// else `ladder` in XDG_CACHE_HOME or ~/.cache. A later run takes them if the text in this file and
/// the tokenizer are equal. If several processes of a machine want the tokens, one of them writes
/// them, and the others wait. Tokens of a text that has changed since go, and stderr says so.
/// @param says whether stderr is told that a text is encoded @throws UserError
KeptTokens keep_tokens(const RunTokenizer& tokenizer, const std::string& text, int threads,
                       bool says);

/// Tokens and where they come from, for the screen.
std::string tokens_text(const RunOptions& options);

/// What counts the targets that losses are means over.
struct LossTargets {
  std::function<TargetCount(int64_t step, int64_t tokens)> of_step;  ///< of its whole batch
  std::function<TargetCount()> of_validation;
};
/// The targets of the sequences that Text draws.
LossTargets targets_of(const RunOptions& options, const GptConfig& gpt);

}  // namespace ladder
