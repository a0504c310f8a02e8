#!/usr/bin/env python3
"""What test_transformers.py does with a GPT-2, with a LLaMA. Takes the same arguments."""

from test_transformers import TIED, Transformers, main, tied

# Three layers of llama-nano: heads in pairs that share a key and a value.
LLAMA = {"num_hidden_layers": 3, "num_attention_heads": 8, "num_key_value_heads": 4,
         "hidden_size": 128, "intermediate_size": 384, "vocab_size": 256,
         "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "tie_word_embeddings": False}
LLAMA_FLAGS = ["--model", "llama-nano", "--layers", "3"]
THETA = 500000.0
PLAIN = {"rope_theta": 10000.0, "rope_type": "default"}
LINEAR = {"rope_type": "linear", "factor": 4.0}


class Llama(Transformers):
    KIND, CONFIG, FLAGS = "llama", LLAMA, LLAMA_FLAGS
    SAVED = {"llama, trained": {},
             "llama, trained, head tied": {"config": tied(LLAMA), "flags": [*LLAMA_FLAGS, TIED]}}
    MADE = {
        "llama, one file": {},
        "llama, shards": {"shards": "200KB"},
        "llama, BF16, shards": {"shards": "200KB", "dtype": "bf16"},
        "llama, F16": {"dtype": "f16"},
        "llama, head tied": {"config": tied(LLAMA)},
        "llama without a head": {"config": tied(LLAMA), "without_head": True},
    }
    LAID_OUT = "llama, BF16, shards"
    REFUSED = {
        "rms_norm_eps": ({"rms_norm_eps": 1e-4},
                         "rms_norm_eps is 0.0001, but Ladder computes with 1e-05", True),
        "theta": ({"rope_theta": THETA, "rope_parameters": {**PLAIN, "rope_theta": THETA}},
                  "rope_theta is 500000.0, but this model has 10000.0", True),
        "two places": ({"rope_parameters": PLAIN, "rope_scaling": LINEAR},
                       'rope_type is "linear"', True),
        "theta inside": ({"rope_theta": 10000.0, "rope_parameters": {**PLAIN, "rope_theta": THETA}},
                         "rope_theta is 500000.0", True),
        "hidden_act": ({"hidden_act": "gelu"}, 'hidden_act is "gelu", but Ladder computes with "silu"',
                       True),
    }
    CONFUSED = ["interleaved RoPE", "gate and up swapped", "groups in another order"]


if __name__ == "__main__":
    main(Llama)
