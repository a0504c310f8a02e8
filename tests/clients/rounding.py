"""How far a loss in FP32 may be from the same in FP64; test_transformers.py derives it."""

import math

EPS = 2.0**-24


def of_loss(layers, channels, tokens, hidden, vocab):
    """4 sqrt(n) eps, as a part of the loss. n roundings are on the longest way: of a layer two norms, qkv, scores,
    values, projection, and the MLP's two; norm and head."""
    C = channels
    n = layers * (2 * C + C + C + tokens + C + C + hidden) + 2 * C + vocab
    return 4 * math.sqrt(n) * EPS
