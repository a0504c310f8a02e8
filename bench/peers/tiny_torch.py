#!/usr/bin/env python3
"""The model `tiny` trained in PyTorch, as people write it: a peer for speed and learning curve.

    python3 bench/peers/tiny_torch.py --data runs/bible.txt --steps 60     median step time
    python3 bench/peers/tiny_torch.py --data runs/bible.txt --curve        learning curve

FP32 on the CPU. The learning rate, clipping and decay are those of chapter 04's demonstration:
AdamW 1e-3 with betas 0.9 and 0.99, decay 0.1, clip 1, 100 warm-up steps, cosine to a tenth.
"""

import argparse
import json
import math
import statistics
import time

import torch
import torch.nn.functional as F
from torch import nn

LAYERS, HEADS, CHANNELS, SEQ_LEN, VOCAB = 4, 4, 128, 64, 256
PEAK_LR, LOW_LR, WARMUP, CURVE_STEPS = 1e-3, 1e-4, 100, 2000
VALIDATION_TOKENS = 65536


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(CHANNELS, 3 * CHANNELS)
        self.proj = nn.Linear(CHANNELS, CHANNELS)
        causal = torch.ones(SEQ_LEN, SEQ_LEN, dtype=torch.bool).tril()
        self.register_buffer("causal", causal, persistent=False)

    def forward(self, x):
        B, T, C = x.shape
        split = self.qkv(x).chunk(3, dim=-1)
        q, k, v = (t.view(B, T, HEADS, C // HEADS).transpose(1, 2) for t in split)
        score = q @ k.transpose(-2, -1) * (C // HEADS) ** -0.5
        score = score.masked_fill(~self.causal[:T, :T], float("-inf"))
        out = F.softmax(score, dim=-1) @ v
        return self.proj(out.transpose(1, 2).reshape(B, T, C))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(CHANNELS), nn.LayerNorm(CHANNELS)
        self.attn = Attention()
        self.fc = nn.Linear(CHANNELS, 4 * CHANNELS)
        self.proj = nn.Linear(4 * CHANNELS, CHANNELS)

    def forward(self, x):
        x = x + self.attn(self.norm1(x))
        return x + self.proj(F.gelu(self.fc(self.norm2(x)), approximate="tanh"))


class Gpt(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte = nn.Embedding(VOCAB, CHANNELS)
        self.wpe = nn.Embedding(SEQ_LEN, CHANNELS)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm = nn.LayerNorm(CHANNELS)
        self.head = nn.Linear(CHANNELS, VOCAB, bias=False)
        for name, param in self.named_parameters():
            if name.endswith("proj.weight"):
                nn.init.normal_(param, std=0.02 / math.sqrt(2 * LAYERS))
            elif param.dim() == 2:
                nn.init.normal_(param, std=0.02)
            elif name.endswith("bias"):
                nn.init.zeros_(param)

    def forward(self, tokens, targets):
        x = self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1]))
        for block in self.blocks:
            x = block(x)
        return F.cross_entropy(self.head(self.norm(x)).flatten(0, 1), targets.flatten())


def rows(text, starts):
    """Tokens and targets (B,T) that start at the given bytes."""
    both = torch.stack([text[s : s + SEQ_LEN + 1] for s in starts])
    return both[:, :-1], both[:, 1:]


def learning_rate(step):
    if step < WARMUP:
        return PEAK_LR * (step + 1) / WARMUP
    done = min(1.0, (step - WARMUP) / (CURVE_STEPS - WARMUP))
    return LOW_LR + (PEAK_LR - LOW_LR) * (1 + math.cos(math.pi * done)) / 2


@torch.no_grad()
def validation_loss(model, held_out, batch):
    """Mean over as many sequences as Ladder takes, spread over the held-out text in the same way."""
    count = min((len(held_out) - 1) // SEQ_LEN, VALIDATION_TOKENS // SEQ_LEN)
    room = len(held_out) - 1 - SEQ_LEN
    starts = [i * room // max(1, count - 1) for i in range(count)]
    parts = [starts[i : i + batch] for i in range(0, count, batch)]
    return sum(model(*rows(held_out, part)).item() * len(part) for part in parts) / count


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", required=True, help="text file; its last tenth is held out")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--batch", type=int, default=12)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--foreach", action="store_true", help="AdamW over all tensors at once")
    parser.add_argument("--curve", action="store_true",
                        help=f"train {CURVE_STEPS} steps, validation loss every 500")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead")
    return parser.parse_args()


def main():
    args = parse_args()
    steps = CURVE_STEPS if args.curve else args.steps
    torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)
    with open(args.data, "rb") as file:
        text = torch.frombuffer(bytearray(file.read()), dtype=torch.uint8).long()
    train, held_out = text.split([len(text) - len(text) // 10, len(text) // 10])

    model = Gpt()
    groups = [{"params": [p for p in model.parameters() if p.dim() == 2], "weight_decay": 0.1},
              {"params": [p for p in model.parameters() if p.dim() == 1], "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=PEAK_LR, betas=(0.9, 0.99), foreach=args.foreach)

    curve, step_ms = {}, []
    for step in range(steps):
        if args.curve and step % 500 == 0:
            curve[step] = validation_loss(model, held_out, args.batch)
        start = time.perf_counter()
        tokens, targets = rows(train, torch.randint(len(train) - SEQ_LEN, (args.batch,)))
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step)
        loss = model(tokens, targets)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        loss.item()
        step_ms.append(1000 * (time.perf_counter() - start))
    if args.curve:
        curve[steps] = validation_loss(model, held_out, args.batch)

    result = {"torch": torch.__version__, "step_ms_median": statistics.median(step_ms),
              "final_loss": loss.item(), "val_loss": curve}
    if args.json:
        print(json.dumps(result))
        return
    print(f"PyTorch {torch.__version__}, {args.threads} threads, batch {args.batch}: "
          f"{result['step_ms_median']:.1f} ms a step (median of {steps})")
    for step, value in curve.items():
        print(f"step {step:5}: validation loss {value:.3f}")


if __name__ == "__main__":
    main()
