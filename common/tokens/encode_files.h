// Files of text as a file of tokens: part by part, in as much memory whatever their size.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/tokens/documents.h"
#include "common/tokens/encoder.h"
#include "common/tokens/token_file.h"

namespace ladder {

/// How encode_files() takes its texts.
struct EncodeOptions {
  Utf8 utf8 = Utf8::Refuse;
  bool allow_special = false;  ///< what spells a special token becomes it
  int threads = 1;
};

/// What a run of encode_files() has seen.
struct EncodeReport {
  int64_t bytes = 0;
  Encoder::Stats cache;
  double processor_seconds = 0;  ///< of all threads
};

/// Appends the tokens of a text. @param allow_special finds those whose text stands in it, too
void encode_text(Encoder& encoder, const Tokenizer& tokenizer, std::string_view text,
                 bool allow_special, std::vector<uint32_t>& out);

/// Each document of `paths`, and the end of text behind it, if the tokenizer has one.
/// @throws UserError, before which nothing is written under the writer's names
EncodeReport encode_files(const Tokenizer& tokenizer, const std::vector<std::string>& paths,
                          const EncodeOptions& options, TokenWriter& writer);

}  // namespace ladder
