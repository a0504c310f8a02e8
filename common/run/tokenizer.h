// The tokenizer of a run (--tokenizer), the file in which the tokens of its text are kept, and the
// number of bytes that the targets of a loss stand for.
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

/// A file with the tokens of a text.
struct KeptTokens {
  std::string path;
  int64_t width = 0;  ///< bytes of each token in the file
};

/// Encodes the file `text`, unless its tokens are kept already. They are kept in the folder that
/// LADDER_CACHE of the environment names, or else in `ladder` in XDG_CACHE_HOME or ~/.cache. Kept
/// tokens are used again if text, tokenizer and tokens have the hashes in their name. If the text
/// has changed, or its tokens are damaged, they are replaced. If several processes of a machine
/// want the tokens, one of them writes them, and the others wait.
/// @param says whether stderr says that a text is encoded
/// @throws UserError
KeptTokens keep_tokens(const RunTokenizer& tokenizer, const std::string& text, int threads,
                       bool says);

/// A line for the screen: the vocabulary, its tokenizer, and the file that --data is read from.
std::string tokens_text(const RunOptions& options);

/// Counts the targets of a loss, and their bytes.
struct LossTargets {
  std::function<TargetCount(int64_t step, int64_t tokens)> of_step;  ///< of the step's whole batch
  std::function<TargetCount()> of_validation;
};
/// Counts those of the sequences that Text draws.
LossTargets targets_of(const RunOptions& options, const GptConfig& gpt);

}  // namespace ladder
