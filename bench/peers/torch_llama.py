"""LLaMA's block in PyTorch as people write it: the peer of chapter 19."""

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn

from torch_gpt import library


@dataclass
class Config:
    layers: int
    heads: int
    kv_heads: int
    channels: int
    hidden: int
    vocab: int


# What the flags of whole_step.py make of chapter 19. llama-124m: 152,783,616 parameters, padding counted.
LLAMA = {"llama-124m": Config(layers=12, heads=12, kv_heads=4, channels=768, hidden=2048, vocab=50304),
         "qwen2.5-0.5b": Config(layers=24, heads=14, kv_heads=2, channels=896, hidden=4864, vocab=151936)}


def angles(T, size, device):
    """Cosines and sines (T,HS/2) by which queries and keys are turned."""
    rates = 10000.0 ** (-torch.arange(0, size, 2, device=device).float() / size)
    turn = torch.arange(T, device=device).float()[:, None] * rates
    return turn.cos(), turn.sin()


def turned(x, cos, sin):
    """Channel i with channel i + HS/2, as Hugging Face pairs them. x (B,NH,T,HS)."""
    a, b = x.float().chunk(2, dim=-1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1).to(x.dtype)


class Attention(nn.Module):
    def __init__(self, config, core):
        super().__init__()
        C, self.heads, self.kv_heads, self.core = config.channels, config.heads, config.kv_heads, core
        self.rows = [C, *2 * [config.kv_heads * C // config.heads]]
        self.qkv = nn.Linear(C, sum(self.rows), bias=False)
        self.proj = nn.Linear(C, C, bias=False)

    def forward(self, x, cos, sin):
        B, T, C = x.shape
        q, k, v = (t.view(B, T, -1, C // self.heads).transpose(1, 2)
                   for t in self.qkv(x).split(self.rows, dim=-1))
        q, k = turned(q, cos, sin), turned(k, cos, sin)
        if self.core is library:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        else:
            k, v = (t.repeat_interleave(self.heads // self.kv_heads, dim=1) for t in (k, v))
            y = self.core(q, k, v)
        return self.proj(y.transpose(1, 2).reshape(B, T, C))


class Block(nn.Module):
    def __init__(self, config, core):
        super().__init__()
        C = config.channels
        self.norm1, self.norm2 = nn.RMSNorm(C, eps=1e-5), nn.RMSNorm(C, eps=1e-5)
        self.attn = Attention(config, core)
        self.fc = nn.Linear(C, 2 * config.hidden, bias=False)
        self.proj = nn.Linear(config.hidden, C, bias=False)

    def forward(self, x, cos, sin):
        x = x + self.attn(self.norm1(x), cos, sin)
        gate, up = self.fc(self.norm2(x)).chunk(2, dim=-1)
        return x + self.proj(F.silu(gate) * up)


class Llama(nn.Module):
    """Mean loss of targets (B,T) after tokens (B,T)."""

    def __init__(self, config, core):
        super().__init__()
        C = config.channels
        self.head_size = C // config.heads
        self.wte = nn.Embedding(config.vocab, C)
        self.blocks = nn.ModuleList(Block(config, core) for _ in range(config.layers))
        self.norm = nn.RMSNorm(C, eps=1e-5)
        self.head = nn.Linear(C, config.vocab, bias=False)
        for name, param in self.named_parameters():
            if param.dim() == 2:
                branch_end = name.endswith("proj.weight")
                nn.init.normal_(param, std=0.02 / (math.sqrt(2 * config.layers) if branch_end else 1))

    def forward(self, tokens, targets):
        x = self.wte(tokens)
        cos, sin = angles(tokens.shape[1], self.head_size, tokens.device)
        for block in self.blocks:
            x = block(x, cos, sin)
        logits = self.head(self.norm(x)).flatten(0, 1)
        return F.cross_entropy(logits.float() if logits.is_cuda else logits, targets.flatten())
