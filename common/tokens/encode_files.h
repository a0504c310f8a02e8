// Encodes files of text, part by part. So the memory that it takes itself does not depend on the
// size of the files.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/tokens/documents.h"
#include "common/tokens/encoder.h"
#include "common/tokens/token_file.h"

namespace ladder {

/// How encode_files() reads its texts.
struct EncodeOptions {
  Utf8 utf8 = Utf8::Refuse;
  bool allow_special = false;  ///< a text that spells a special token becomes that token
  int threads = 1;
};

/// What encode_files() counts.
struct EncodeReport {
  int64_t bytes = 0;
  Encoder::Stats cache;
  double processor_seconds = 0;  ///< of all threads
};

/// Writes the tokens of each document of `paths`, and the end of text after each of them.
/// @throws UserError, also if the tokenizer has no end of text; then there is no file under the
/// writer's names
EncodeReport encode_files(const Tokenizer& tokenizer, const std::vector<std::string>& paths,
                          const EncodeOptions& options, TokenSink& writer);

}  // namespace ladder
