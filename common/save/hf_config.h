// config.json: what Hugging Face's transformers know of a GPT-2 or a LLaMA in addition to its
// weights.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "common/model/config.h"

namespace ladder {

/// The config.json with which GPT2LMHeadModel or LlamaForCausalLM computes the same as this model,
/// in transformers 4 and 5. For a mixture of both, it says that neither does.
nlohmann::json hf_config(const GptConfig& config);

/// The model that a config.json of GPT-2, LLaMA, Mistral or Mixtral describes, as far as its sizes
/// go; check_hf_config() looks at the rest. Its seq_len is the longest text.
/// @throws UserError; nlohmann::json::exception if a size is missing
GptConfig config_of_hf(const nlohmann::json& theirs);

/// Checks that a config.json describes this model: its sizes, and the function that Ladder computes
/// with them. Anyone may have written the file. Keys that it lacks have the defaults of
/// transformers.
/// @return whether the head is the embedding (tie_word_embeddings)
/// @throws UserError that names the key that does not agree, and both values; the caller names the
/// file
bool check_hf_config(const nlohmann::json& theirs, const GptConfig& config);

}  // namespace ladder
