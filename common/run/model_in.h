// Which model a checkpoint holds.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "common/model/config.h"

namespace ladder {

/// The model in `load`, a directory of --save or of Hugging Face, whose files say which it is. Its
/// seq_len is `seq_len` if that is given, else the longest text that the files name.
/// @param flag for messages @throws UserError
GptConfig model_in(const char* flag, const std::string& load, std::optional<int64_t> seq_len);

}  // namespace ladder
