// The tokenizer of a run (--tokenizer), and the file that keeps its text as tokens.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/tokens/tokenizer.h"

namespace ladder {

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
/// else `ladder` in XDG_CACHE_HOME or ~/.cache. A later run with an equal text and tokenizer takes
/// the same file. If several processes of a machine want the file, one of them writes it, and the
/// others wait. The file of a text that has changed since goes, and stderr says so.
/// @param says whether stderr is told that a text is encoded @throws UserError
KeptTokens keep_tokens(const RunTokenizer& tokenizer, const std::string& text, int threads,
                       bool says);

}  // namespace ladder
