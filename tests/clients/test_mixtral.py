#!/usr/bin/env python3
"""What test_transformers.py does with a GPT-2, with a Mixtral of chapter 21. Takes the same arguments.

Where two experts have scores that differ by rounding alone, FP32 and FP64 may choose another one
each, and the loss changes by more than the tolerance. These models have no such token.
"""

from test_transformers import TOKENS, Transformers, main

# Three layers of moe-nano, with three experts of each token.
MIXTRAL = {"num_hidden_layers": 3, "num_attention_heads": 8, "num_key_value_heads": 4,
           "hidden_size": 64, "intermediate_size": 64, "vocab_size": 256, "rope_theta": 10000.0,
           "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "num_local_experts": 8,
           "num_experts_per_tok": 3, "sliding_window": None, "tie_word_embeddings": False}
MIXTRAL_FLAGS = ["--model", "moe-nano", "--layers", "3", "--experts-per-token", "3"]


class Mixtral(Transformers):
    KIND, CHAPTER, CONFIG, FLAGS, STEPS = "mixtral", "21_moe", MIXTRAL, MIXTRAL_FLAGS, 60
    SAVED = {"mixtral, trained": {}}
    MADE = {
        "mixtral, one file": {},
        "mixtral, shards": {"shards": "200KB"},
        "mixtral, BF16": {"dtype": "bf16"},
        "mixtral, a window of the sequence": {"config": {**MIXTRAL, "sliding_window": TOKENS}},
    }
    REFUSED = {
        "num_experts_per_tok": ({"num_experts_per_tok": 2},
                                "num_experts_per_tok is 2, but this model has 3", True),
        "rms_norm_eps": ({"rms_norm_eps": 1e-4},
                         "rms_norm_eps is 0.0001, but Ladder computes with 1e-05", True),
        "sliding_window": ({"sliding_window": TOKENS - 1},
                           "sliding_window is 15, but this run has sequences of 16 tokens", True),
        "rope_scaling": ({"rope_scaling": {"rope_type": "linear", "factor": 4.0, "rope_theta": 10000.0}},
                         'rope_type is "linear"', True),
    }
    CONFUSED = ["w1 and w3 swapped", "experts in another order", "router reversed"]

    def test_every_layout_reads_it(self):
        """Chapter 21 knows one rank."""


if __name__ == "__main__":
    main(Mixtral)
