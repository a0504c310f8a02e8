"""A GPT in PyTorch as people write it, and one step of its training: what the peers here share."""

import math
import statistics
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
    """A file as tokens: training part, and the last tenth."""
    with open(path, "rb") as file:
        text = torch.frombuffer(bytearray(file.read()), dtype=torch.uint8).long()
    return text.split([len(text) - len(text) // 10, len(text) // 10])


def rows(text, starts, seq_len):
    """Tokens and targets (B,T) that start at the given bytes."""
    both = torch.stack([text[s : s + seq_len + 1] for s in starts])
    return both[:, :-1], both[:, 1:]


def draw(text, batch, seq_len):
    return rows(text, torch.randint(len(text) - seq_len, (batch,)), seq_len)


def train_step(model, optimizer, batch, bf16=False, fresh_grads=True):
    """Forward, backward, update. Returns the loss, and so waits for a GPU. bf16: products under autocast."""
    optimizer.zero_grad(set_to_none=fresh_grads)
    with torch.autocast(batch[0].device.type, dtype=torch.bfloat16, enabled=bf16):
        loss = model(*batch)
    loss.backward()
    optimizer.step()
    return loss.item()


def add_flags(parser):
    """The flags of every program here."""
    add = parser.add_argument
    add("--data", required=True, help="file whose bytes are tokens")
    add("--steps", type=int, default=5)
    add("--warmup", type=int, default=0, help="steps before those that count")
    add("--batch", type=int, default=4, help="sequences, over all ranks")
    add("--threads", type=int, default=1, help="of a rank")
    add("--attention", choices=ATTENTION, default="masked")
    add("--compile", action="store_true", help="torch.compile")
    add("--foreach", action="store_true", help="AdamW over all tensors at once")
    add("--fused", action="store_true", help="AdamW in one kernel")
    add("--keep-grads", action="store_true", help="zero gradients and add, instead of new ones each step")


def how_adamw(args):
    return {name: True for name in ["foreach", "fused"] if getattr(args, name)}


def measured(step, args):
    """Calls step(), which returns milliseconds and a loss, as often as the flags say. Returns what a program prints."""
    step_ms, losses = zip(*[step() for _ in range(args.warmup + args.steps)][args.warmup:])
    return {"torch": torch.__version__, "batch": args.batch, "step_ms_median": statistics.median(step_ms),
            "step_ms": step_ms, "final_loss": losses[-1]}
