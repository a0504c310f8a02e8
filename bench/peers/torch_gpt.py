"""A GPT in PyTorch as people write it, its optimizer and its batches: what the peers here share."""

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn


@dataclass
class Config:
    layers: int
    heads: int
    channels: int
    positions: int
    vocab: int


SMALL = Config(layers=6, heads=6, channels=384, positions=256, vocab=256)
GPT2 = {"gpt2-124m": Config(layers=12, heads=12, channels=768, positions=1024, vocab=50304),
        "gpt2-350m": Config(layers=24, heads=16, channels=1024, positions=1024, vocab=50304),
        "gpt2-774m": Config(layers=36, heads=20, channels=1280, positions=1024, vocab=50304),
        "gpt2-1558m": Config(layers=48, heads=25, channels=1600, positions=1024, vocab=50304)}


def masked(q, k, v):
    """Scores of all pairs, those of the future overwritten. q, k, v and the result (B,NH,T,HS)."""
    T = q.shape[2]
    causal = torch.ones(T, T, dtype=torch.bool).tril()
    score = q @ k.transpose(-2, -1) * q.shape[3] ** -0.5
    return F.softmax(score.masked_fill(~causal, float("-inf")), dim=-1) @ v


def library(q, k, v):
    """The library's own."""
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


ATTENTION = {f.__name__: f for f in (masked, library)}


class Attention(nn.Module):
    def __init__(self, config, core):
        super().__init__()
        C = config.channels
        self.heads, self.core = config.heads, core
        self.qkv = nn.Linear(C, 3 * C)
        self.proj = nn.Linear(C, C)

    def forward(self, x):
        B, T, C = x.shape
        split = self.qkv(x).chunk(3, dim=-1)
        q, k, v = (t.view(B, T, self.heads, C // self.heads).transpose(1, 2) for t in split)
        return self.proj(self.core(q, k, v).transpose(1, 2).reshape(B, T, C))


class Block(nn.Module):
    def __init__(self, config, core):
        super().__init__()
        C = config.channels
        self.norm1, self.norm2 = nn.LayerNorm(C), nn.LayerNorm(C)
        self.attn = Attention(config, core)
        self.fc = nn.Linear(C, 4 * C)
        self.proj = nn.Linear(4 * C, C)

    def forward(self, x):
        x = x + self.attn(self.norm1(x))
        return x + self.proj(F.gelu(self.fc(self.norm2(x)), approximate="tanh"))


class Gpt(nn.Module):
    """Mean loss of targets (B,T) after tokens (B,T)."""

    def __init__(self, config, core=masked):
        super().__init__()
        C = config.channels
        self.wte = nn.Embedding(config.vocab, C)
        self.wpe = nn.Embedding(config.positions, C)
        self.blocks = nn.ModuleList(Block(config, core) for _ in range(config.layers))
        self.norm = nn.LayerNorm(C)
        self.head = nn.Linear(C, config.vocab, bias=False)
        for name, param in self.named_parameters():
            if name.endswith("proj.weight"):
                nn.init.normal_(param, std=0.02 / math.sqrt(2 * config.layers))
            elif param.dim() == 2:
                nn.init.normal_(param, std=0.02)
            elif name.endswith("bias"):
                nn.init.zeros_(param)

    def forward(self, tokens, targets):
        x = self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.norm(x)).flatten(0, 1)
        # On a GPU the loss is computed in FP32 whatever the weights are, as autocast has it there.
        return F.cross_entropy(logits.float() if logits.is_cuda else logits, targets.flatten())


def adamw(params, lr, betas, **how):
    """AdamW with decay 0.1 on matrices and embeddings. how: foreach=True or fused=True."""
    params = list(params)
    groups = [{"params": [p for p in params if p.dim() == 2], "weight_decay": 0.1},
              {"params": [p for p in params if p.dim() == 1], "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=lr, betas=betas, **how)


def read_bytes(path):
    """A file as tokens, without its last tenth."""
    with open(path, "rb") as file:
        text = torch.frombuffer(bytearray(file.read()), dtype=torch.uint8).long()
    return text[:len(text) - len(text) // 10]


def draw(text, batch, seq_len):
    """Tokens and targets (B,T) that start at random bytes."""
    starts = torch.randint(len(text) - seq_len, (batch,))
    both = torch.stack([text[s : s + seq_len + 1] for s in starts])
    return both[:, :-1], both[:, 1:]
