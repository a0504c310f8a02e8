// config.json: what Hugging Face's transformers know of a GPT-2 or a LLaMA beside its weights.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "common/model/config.h"

namespace ladder {

/// The config.json with which GPT2LMHeadModel or LlamaForCausalLM computes what this model
/// computes, in transformers 4 and 5. Of a mixture of both it says that neither does.
nlohmann::json hf_config(const GptConfig& config);

/// Whether a config.json that anyone may have written describes this model: its sizes, and the
/// function that Ladder computes with them. What it leaves out has the default that transformers
/// give it.
/// @return whether the head is the embedding (tie_word_embeddings)
/// @throws UserError with the key that does not agree and both values; the caller names the file
bool check_hf_config(const nlohmann::json& theirs, const GptConfig& config);

}  // namespace ladder
