#!/usr/bin/python3
"""The golden numbers: the first steps of Ladder's training, worked out by PyTorch in double.

    python3 scripts/golden.py [NAME ...]    (Debian's python3-torch; a few seconds for each)

The same models, initial weights, batches and optimizers as chapters 01, 02, 19, 21, 26, 32 and 34, written
a second time from their definitions and with PyTorch's autograd and torch.optim. Nothing of Ladder
runs here. Writes to tests/golden/ for each run below its flags with the loss and the gradient norm
of every step; the text to train on lies there. The tests of the chapters hold their programs to
them. It also prints how far PyTorch itself strays in FP32: what a tolerance has to allow.
"""

import json
import math
import sys
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

OUT = Path(__file__).resolve().parents[1] / "tests" / "golden"
STEPS = 20

# Sizes that --model gives: layers, heads, channels, seq-len; positions is the seq-len it gives.
PRESETS = {"nano": (8, 8, 128, 16), "tiny": (4, 4, 128, 64), "llama-tiny": (4, 4, 128, 64),
           "moe-nano": (4, 8, 64, 16)}
# What a LLaMA has beside: heads of keys and values, channels of the MLP, theta.
LLAMAS = {"llama-tiny": (2, 384, 10000), "moe-nano": (4, 64, 10000)}
# And experts in place of one MLP.
EXPERTS = {"moe-nano": 8}
VOCAB = 256

# Two small models. The odd one has heads of 8, rows that fill no vector register, a batch that
# is no power of two, fewer tokens than positions, and a seed of more than 32 bits.
SMALL = {"model": "nano", "layers": 2, "heads": 4, "channels": 64, "batch": 4, "seed": 1}
ODD = {"model": "tiny", "layers": 3, "heads": 5, "channels": 40, "seq-len": 31, "batch": 3,
       "seed": 1234567890123}
ADAM = {"lr": 2e-3, "beta1": 0.9, "beta2": 0.95, "eps": 1e-6, "weight-decay": 0.3}

# name -> (chapter, flags of its program). What torch.optim is to do follows from the flags.
RUNS = {
    "sgd": ("01_sgd", {**SMALL, "lr": 0.1}),
    "momentum": ("01_sgd", {**SMALL, "lr": 0.1, "momentum": 0.9}),
    "nesterov": ("01_sgd", {**ODD, "lr": 0.1, "momentum": 0.8, "nesterov": True}),
    "adam": ("02_adamw", {**SMALL, **ADAM, "optimizer": "adam"}),
    "adamw": ("02_adamw", {**SMALL, **ADAM, "optimizer": "adamw"}),
    "adamw_odd": ("02_adamw", {**ODD, **ADAM, "optimizer": "adamw", "beta2": 0.99}),
    "adamw_llama": ("02_adamw", {"model": "llama-tiny", "batch": 4, "seed": 1, **ADAM,
                                 "optimizer": "adamw", "lr": 5e-4}),
    "adamw_moe": ("21_moe", {"model": "moe-nano", "layers": 2, "batch": 4, "seed": 1, **ADAM,
                             "optimizer": "adamw", "experts-per-token": 3, "shared-experts": 1,
                             "balance-loss": 0.5, "z-loss": 0.1, "bias-rate": 0.01}),
    "adamw_tied": ("02_adamw", {**SMALL, **ADAM, "optimizer": "adamw", "tied-head": True}),
    # Lines in rows of 16 bytes, so that each is cut; words in rows of 24.
    "packed": ("26_packing", {**SMALL, **ADAM, "optimizer": "adamw", "documents": True, "end-of-text": 10,
                              "pack": "ffd", "pack-window": 30, "row-documents": 3}),
    "packed_llama": ("26_packing", {"model": "llama-tiny", "layers": 1, "seq-len": 24, "batch": 2, "seed": 1,
                                    **ADAM, "optimizer": "adamw", "documents": True, "end-of-text": 32,
                                    "pack": "greedy", "pack-window": 7, "row-documents": 64, "lr": 5e-4}),
    # Four times as wide and twice as deep as the base; twice both.
    "scaled": ("34_scaling", {**SMALL, **ADAM, "optimizer": "adamw", "mup": "16,1"}),
    "scaled_llama": ("34_scaling", {"model": "llama-tiny", "batch": 4, "seed": 1, **ADAM,
                                    "optimizer": "adamw", "lr": 1e-3, "mup": "64,2"}),
    # These want torch.optim.Muon, of PyTorch 2.15.
    "muon": ("32_optimizers", {**SMALL, **ADAM, "optimizer": "muon", "muon-lr": 5e-3, "muon-momentum": 0.9,
                               "adjust-lr": "match_rms_adamw"}),
    "muon_llama": ("32_optimizers", {"model": "llama-tiny", "layers": 1, "batch": 4, "seed": 1, **ADAM, "optimizer": "muon",
                                     "muon-lr": 2e-2, "muon-momentum": 0.95, "adjust-lr": "original"}),
}


# ---- random numbers: common/random.h -------------------------------------------------------------

MASK32, MASK64 = 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF


def hash_name(name):
    """FNV-1a, 64 bits."""
    value = 0xCBF29CE484222325
    for byte in name.encode():
        value = (value ^ byte) * 0x100000001B3 & MASK64
    return value


def philox(counter, key):
    """Philox4x32-10 (Salmon et al., SC 2011): 4 arrays of 32-bit words (as uint64), 2 words."""
    a, b, c, d = counter
    k0, k1 = key
    for _ in range(10):
        x, y = a * np.uint64(0xD2511F53), c * np.uint64(0xCD9E8D57)
        high_x, high_y = x >> np.uint64(32), y >> np.uint64(32)
        low_x, low_y = x & np.uint64(MASK32), y & np.uint64(MASK32)
        a, b, c, d = high_y ^ b ^ np.uint64(k0), low_y, high_x ^ d ^ np.uint64(k1), low_x
        k0, k1 = k0 + 0x9E3779B9 & MASK32, k1 + 0xBB67AE85 & MASK32
    return a, b, c, d


def random_bits(seed, name, i, j=0):
    """Two 64-bit words at each index (i[n], j): uint64 arrays."""
    key = hash_name(name) ^ seed
    i = np.asarray(i, np.uint64)
    low, shift = np.uint64(MASK32), np.uint64(32)
    rest = [np.full_like(i, j & MASK32), np.full_like(i, j >> 32)]
    a, b, c, d = philox([i & low, i >> shift, *rest], (key & MASK32, key >> 32))
    return a | b << shift, c | d << shift


def random_below(n, seed, name, i, j=0):
    return (random_bits(seed, name, i, j)[0] % np.uint64(n)).astype(np.int64)


def random_normal(count, seed, name):
    """`count` standard normal numbers, two from each index (Box and Muller)."""
    words = random_bits(seed, name, np.arange((count + 1) // 2))
    a, b = [(word >> np.uint64(11)).astype(np.float64) * 2.0**-53 for word in words]
    radius, angle = np.sqrt(-2 * np.log(1 - a)), 2 * math.pi * b
    return np.stack([radius * np.cos(angle), radius * np.sin(angle)], 1).ravel()[:count]


# ---- the text ------------------------------------------------------------------------------------


def draw_batch(text, flags, step):
    """The batch of one step: tokens, targets, and for each token its document and its position in the document,
    (B,T) each. Each row of a plain text (common/data/text.h) is one document."""
    B, T = flags["batch"], flags["seq-len"]
    if "documents" in flags:
        return draw_documents(text, flags, B, T, step)
    train = len(text) - len(text) // 10  # the last tenth is held out
    starts = random_below(train - T, flags["seed"], "batch", np.arange(B), step)
    rows = np.stack([text[start : start + T + 1] for start in starts])
    position = torch.arange(T).expand(B, T)
    return torch.from_numpy(rows[:, :-1]), torch.from_numpy(rows[:, 1:]), torch.zeros_like(position), position


def plan_rows(pieces, T, flags):
    """Rows, which are lists of pieces (first token, length), as chapters/26_packing/plan.h makes them."""
    rows = []
    first_fit = flags["pack"] == "ffd"
    for n in sorted(range(len(pieces)), key=lambda n: (-pieces[n][1] if first_fit else 0, n)):
        fits = [row for row in (rows if first_fit else rows[-1:]) if len(row) < flags["row-documents"]
                and sum(pieces[i][1] for i in row) + pieces[n][1] <= T]
        fits[0].append(n) if fits else rows.append([n])
    return [[pieces[n] for n in row] for row in sorted(sorted(row) for row in rows)]


def draw_documents(text, flags, B, T, step):
    ends = [i + 1 for i in np.flatnonzero(text == flags["end-of-text"])]
    ends += [] if ends[-1] == len(text) else [len(text)]
    documents = list(zip([0] + ends, ends))
    train, window, rows = documents[:len(documents) - len(documents) // 10], 0, []
    while len(rows) < (step + 1) * B:
        some = train[window:window + flags["pack-window"]]
        rows += plan_rows([(at, min(T, end - 1 - at)) for begin, end in some for at in range(begin, end - 1, T)],
                          T, flags)
        window = window + flags["pack-window"] if window + flags["pack-window"] < len(train) else 0
    tokens, document, position = (torch.zeros(B, T, dtype=torch.long) for _ in range(3))
    targets = torch.full((B, T), -100)  # of padding, which is document 0
    for b, row in enumerate(rows[step * B:(step + 1) * B]):
        at = 0
        for number, (begin, length) in enumerate(row, 1):
            here = slice(at, at + length)
            tokens[b, here] = torch.from_numpy(text[begin:begin + length])
            targets[b, here] = torch.from_numpy(text[begin + 1:begin + 1 + length])
            document[b, here], position[b, here] = number, torch.arange(length)
            at += length
    return tokens, targets, document, position


# ---- the model: common/model ---------------------------------------------------------------------


def shapes(flags):
    """name -> (shape, standard deviation); 1 for the gains, 0 for the biases."""
    L, C = flags["layers"], flags["channels"]
    std, branch = 0.02, 0.02 / math.sqrt(2 * L)
    if flags["model"] in LLAMAS:
        return llama_shapes(flags, std, branch)
    found = {"transformer.wte.weight": ((VOCAB, C), std),
             "transformer.wpe.weight": ((flags["positions"], C), std),
             "transformer.ln_f.weight": ((C,), 1), "transformer.ln_f.bias": ((C,), 0)}
    if not flags.get("tied-head"):
        found["lm_head.weight"] = ((VOCAB, C), std)
    for l in range(L):
        for name, rows, columns, deviation in [("attn.c_attn", 3 * C, C, std),
                                               ("attn.c_proj", C, C, branch),
                                               ("mlp.c_fc", 4 * C, C, std),
                                               ("mlp.c_proj", C, 4 * C, branch)]:
            found[f"transformer.h.{l}.{name}.weight"] = ((rows, columns), deviation)
            found[f"transformer.h.{l}.{name}.bias"] = ((rows,), 0)
        for name in ["ln_1", "ln_2"]:
            found[f"transformer.h.{l}.{name}.weight"] = ((C,), 1)
            found[f"transformer.h.{l}.{name}.bias"] = ((C,), 0)
    return found


def llama_shapes(flags, std, branch):
    C, HS = flags["channels"], flags["channels"] // flags["heads"]
    groups, F, _ = LLAMAS[flags["model"]]
    found = {"model.embed_tokens.weight": ((VOCAB, C), std), "model.norm.weight": ((C,), 1),
             "lm_head.weight": ((VOCAB, C), std)}
    for l in range(flags["layers"]):
        for name, shape, deviation in [
                ("input_layernorm", (C,), 1),
                ("self_attn.qkv_proj", ((flags["heads"] + 2 * groups) * HS, C), std),
                ("self_attn.o_proj", (C, C), branch), ("post_attention_layernorm", (C,), 1),
                ("mlp.gate_up_proj", (2 * F, C), std), ("mlp.down_proj", (C, F), branch)]:
            found[f"model.layers.{l}.{name}.weight"] = (shape, deviation)
        if experts := EXPERTS.get(flags["model"]):
            moe = f"model.layers.{l}.block_sparse_moe."
            found[moe + "gate.weight"] = ((experts, C), std)
            for e in range(experts):
                found[f"{moe}experts.{e}.w13.weight"] = ((2 * F, C), std)
                found[f"{moe}experts.{e}.w2.weight"] = ((C, F), branch)
    return found


# ---- muP and CompleteP as the papers have them: forward multiplies, weights are not folded -------


def ratios(flags):
    """The model's width and depth over the base's: m, d."""
    width, depth = map(int, flags.get("mup", f"{flags['channels']},{flags['layers']}").split(","))
    return flags["channels"] / width, flags["layers"] / depth


def scaled(name, flags):
    """Of a parameter: factors of std, rate, eps and weight decay, and the factor of forward that the program
    folds into it."""
    m, d = ratios(flags)
    block = ".h." in name or ".layers." in name
    ends_branch = any(end in name for end in ("c_proj", "o_proj", "down_proj"))
    matrix = block and name.endswith("proj.weight") or name.endswith(("c_attn.weight", "c_fc.weight"))
    eps = 1 / (m * d) if block else 1 / m
    fold = 1 / m if name == "lm_head.weight" else 1 / d if ends_branch else 1
    if matrix:
        return math.sqrt((d if ends_branch else 1) / m), 1 / m, eps, m, fold
    return 1, 1, eps, 1, fold


def initial_weights(flags, dtype):
    """name -> parameter. Numbers are rounded to FP32 first, because the programs start from those."""
    weights = {}
    for name, (shape, std) in shapes(flags).items():
        value = np.full(shape, std, np.float32)
        if len(shape) == 2:
            normal = random_normal(math.prod(shape), flags["seed"], name).reshape(shape)
            std_factor, _, _, _, fold = scaled(name, flags)
            value = (std * normal).astype(np.float32) * np.float32(std_factor * fold) / fold
        weights[name] = torch.from_numpy(value).to(dtype).requires_grad_()
    return weights


def unseen(document):
    """(B,1,T,T): whether a query may not see a key, which comes later or is of another document."""
    T = document.shape[1]
    other = document[:, :, None] != document[:, None, :]
    return (other | torch.ones(T, T, dtype=torch.bool).triu(1))[:, None]


def attention(x, w, h, heads, document):
    """Causal self-attention of x (B,T,C). Rows of c_attn lie head by head: q, k, v of each."""
    B, T, C = x.shape
    qkv = F.linear(x, w[h + "attn.c_attn.weight"], w[h + "attn.c_attn.bias"])
    q, k, v = qkv.view(B, T, heads, 3, C // heads).permute(3, 0, 2, 1, 4)
    score = q @ k.transpose(-1, -2) / math.sqrt(C // heads)
    weight = score.masked_fill(unseen(document), -math.inf).softmax(-1)
    out = (weight @ v).transpose(1, 2).reshape(B, T, C)
    return F.linear(out, w[h + "attn.c_proj.weight"], w[h + "attn.c_proj.bias"])


def mlp(x, w, h):
    hidden = F.linear(x, w[h + "mlp.c_fc.weight"], w[h + "mlp.c_fc.bias"])
    hidden = F.gelu(hidden, approximate="tanh")
    return F.linear(hidden, w[h + "mlp.c_proj.weight"], w[h + "mlp.c_proj.bias"])


def norm(x, w, name):
    return F.layer_norm(x, x.shape[-1:], w[name + ".weight"], w[name + ".bias"], eps=1e-5)


def turned(x, theta, position):
    """x (B,heads,T,HS) by rotary positions: pair i is channels i and i + HS/2."""
    half = x.shape[-1] // 2
    frequency = theta ** -(torch.arange(half, dtype=torch.float64) / half)
    angle = position.double()[:, None, :, None] * frequency
    turn = torch.polar(torch.ones_like(angle), angle).to(torch.promote_types(x.dtype, torch.cfloat))
    pairs = torch.complex(x[..., :half], x[..., half:]) * turn
    return torch.cat([pairs.real, pairs.imag], -1)


def llama_attention(x, w, h, flags, document, position):
    """Rows of qkv lie group by group: the queries of a group, its key, its value."""
    B, T, C = x.shape
    groups, _, theta = LLAMAS[flags["model"]]
    r = flags["heads"] // groups
    qkv = F.linear(x, w[h + "qkv_proj.weight"])
    qkv = qkv.view(B, T, groups, r + 2, C // flags["heads"]).permute(0, 2, 3, 1, 4)
    q, k, v = qkv[:, :, :r].flatten(1, 2), qkv[:, :, r], qkv[:, :, r + 1]
    k, v = (x.repeat_interleave(r, 1) for x in (k, v))
    score = turned(q, theta, position) @ turned(k, theta, position).transpose(-1, -2) / math.sqrt(q.shape[-1])
    out = score.masked_fill(unseen(document), -math.inf).softmax(-1) @ v
    return F.linear(out.transpose(1, 2).reshape(B, T, C), w[h + "o_proj.weight"])


def swiglu(x, w, gate_up, down):
    """Rows of gate_up are a gate and what it lets through, in turn."""
    gate, up = F.linear(x, w[gate_up + ".weight"]).unflatten(-1, (-1, 2)).unbind(-1)
    return F.linear(gate * torch.sigmoid(gate) * up, w[down + ".weight"])


def experts(x, w, h, flags, bias, router):
    """For x (B,T,C) the weighted sum of each token's experts. `router` gets the loss of the router,
    mean over sequences, and the load of the experts, whose `bias` chooses with the scores."""
    E, k = EXPERTS[flags["model"]], flags["experts-per-token"]
    logits = F.linear(x, w[h + "gate.weight"])
    scores = logits.softmax(-1)
    chosen = (scores.detach() + bias).topk(k, -1).indices
    taken = F.one_hot(chosen, E).sum(-2)
    weight = scores * taken
    weight = weight / weight.sum(-1, keepdim=True)
    share = taken.double().mean(1) * E / k
    balance = (share * scores.mean(1)).sum(-1).mean()
    z = logits.logsumexp(-1).square().mean()
    router.append((flags["balance-loss"] * balance + flags["z-loss"] * z, taken.sum((0, 1))))
    return sum(weight[..., e, None] * swiglu(x, w, f"{h}experts.{e}.w13", f"{h}experts.{e}.w2")
               for e in range(E))


def rms_norm(x, w, name):
    return x / torch.sqrt(x.square().mean(-1, keepdim=True) + 1e-5) * w[name + ".weight"]


def llama_loss(w, flags, tokens, targets, document, position, biases, router):
    x = w["model.embed_tokens.weight"][tokens]
    m, d = ratios(flags)
    for l in range(flags["layers"]):
        h = f"model.layers.{l}."
        x = x + llama_attention(rms_norm(x, w, h + "input_layernorm"), w, h + "self_attn.", flags, document,
                                position) / d
        inp = rms_norm(x, w, h + "post_attention_layernorm")
        x = x + swiglu(inp, w, h + "mlp.gate_up_proj", h + "mlp.down_proj") / d
        if flags["model"] in EXPERTS:
            x = x + experts(inp, w, h + "block_sparse_moe.", flags, biases[l], router)
    logits = F.linear(rms_norm(x, w, "model.norm"), w["lm_head.weight"]) / m
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def mean_loss(w, flags, tokens, targets, document, position, biases, router):
    if flags["model"] in LLAMAS:
        return llama_loss(w, flags, tokens, targets, document, position, biases, router)
    x = w["transformer.wte.weight"][tokens] + w["transformer.wpe.weight"][position]
    m, d = ratios(flags)
    for l in range(flags["layers"]):
        h = f"transformer.h.{l}."
        x = x + attention(norm(x, w, h + "ln_1"), w, h, flags["heads"], document) / d
        x = x + mlp(norm(x, w, h + "ln_2"), w, h) / d
    head = "transformer.wte.weight" if flags.get("tied-head") else "lm_head.weight"
    logits = F.linear(norm(x, w, "transformer.ln_f"), w[head]) / m
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


# ---- training ------------------------------------------------------------------------------------


def newton_schulz(grad, coefficients, steps, eps):
    """What torch.optim.Muon does in BF16, in double."""
    if grad.shape[0] > grad.shape[1]:
        return newton_schulz(grad.T, coefficients, steps, eps).T
    a, b, c = coefficients
    x = grad.double() / grad.double().norm().clamp(min=eps)
    for _ in range(steps):
        gram = x @ x.T
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x


def pieces(name, w, flags):
    """How many rows of a group of rows belong to each of the matrices that Muon is to see apart. None: w has AdamW."""
    if flags.get("optimizer") != "muon" or w.dim() != 2 or not (".h." in name or ".layers." in name):
        return None
    if "c_attn" in name or "qkv_proj" in name:
        groups = LLAMAS[flags["model"]][0] if flags["model"] in LLAMAS else flags["heads"]
        size = flags["channels"] // flags["heads"]
        return [flags["heads"] // groups * size, size, size]
    return [1, 1] if "gate_up" in name else [len(w)]


def split(w, rows):
    parts = w.detach().unflatten(0, (-1, sum(rows))).split(rows, 1)
    return [part.flatten(0, 1).clone().requires_grad_() for part in parts]


def joined(parts, rows):
    return torch.cat([part.unflatten(0, (-1, n)) for part, n in zip(parts, rows)], 1).flatten(0, 1)


def make_muon(flags, matrices):
    torch.optim._muon._zeropower_via_newtonschulz = newton_schulz
    return torch.optim.Muon(matrices, lr=flags["muon-lr"], weight_decay=flags["weight-decay"],
                            momentum=flags["muon-momentum"], adjust_lr_fn=flags["adjust-lr"])


def make_optimizer(flags, weights):
    if "optimizer" not in flags:
        return torch.optim.SGD(weights.values(), lr=flags["lr"], momentum=flags.get("momentum", 0),
                               nesterov=flags.get("nesterov", False))
    # Matrices and embeddings decay; biases and layer norms do not.
    groups = []
    for name, w in weights.items():
        _, rate, eps, decay, _ = scaled(name, flags)
        groups.append({"params": [w], "lr": flags["lr"] * rate, "eps": flags["eps"] * eps,
                       "weight_decay": flags["weight-decay"] * decay if w.dim() == 2 else 0})
    kind = torch.optim.Adam if flags["optimizer"] == "adam" else torch.optim.AdamW
    return kind(groups, betas=(flags["beta1"], flags["beta2"]))


def train(flags, text, dtype):
    """Loss and gradient norm of every step, before its update: two lists."""
    names = ["layers", "heads", "channels", "seq-len"]
    sizes = dict(zip(names, PRESETS[flags["model"]]))
    flags = {"positions": sizes["seq-len"], **sizes, **flags}
    others = initial_weights(flags, dtype)
    cuts = {name: rows for name, w in others.items() if (rows := pieces(name, w, flags))}
    apart = {name: split(others.pop(name), rows) for name, rows in cuts.items()}
    matrices = [part for parts in apart.values() for part in parts]
    optimizers = [make_optimizer(flags, others), *([make_muon(flags, matrices)] if matrices else [])]
    losses, norms = [], []
    biases = torch.zeros(flags["layers"], EXPERTS.get(flags["model"], 0), dtype=torch.float64)
    for step in range(STEPS):
        router = []  # of each layer: its loss, which counts beside the one that is reported; its load
        weights = others | {name: joined(parts, cuts[name]) for name, parts in apart.items()}
        loss = mean_loss(weights, flags, *draw_batch(text, flags, step), biases, router)
        for optimizer in optimizers:
            optimizer.zero_grad()
        (loss + sum(of_layer for of_layer, _ in router)).backward()
        for bias, (_, load) in zip(biases, router):
            bias += flags["bias-rate"] * torch.sign(load.double().mean() - load)
        norm2 = sum(w.grad.double().square().sum() for w in [*others.values(), *matrices])
        losses.append(loss.item())
        norms.append(math.sqrt(norm2.item()))
        for optimizer in optimizers:
            optimizer.step()
    return losses, norms


def deviation(got, want):
    """The largest relative difference; NaN if there is one, which max() of Python may pass over."""
    return float(np.max(np.abs(np.divide(got, want) - 1)))


def main():
    unknown = [name for name in sys.argv[1:] if name not in RUNS]
    if unknown:
        print(f"golden.py: no run {unknown[0]!r}; legal are {', '.join(RUNS)}", file=sys.stderr)
        sys.exit(2)
    # A known answer of Random123: the generator here is the one that is meant.
    assert [int(x[0]) for x in philox(np.zeros((4, 1), np.uint64), (0, 0))] == [
        0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]
    text = np.fromfile(OUT / "text.txt", np.uint8).astype(np.int64)

    print("run         loss of the first and the last step    FP32 in PyTorch: loss, norm")
    for name in sys.argv[1:] or RUNS:
        chapter, flags = RUNS[name]
        loss, grad_norm = train(flags, text, torch.float64)
        loss32, norm32 = train(flags, text, torch.float32)
        # Ten digits: enough for any test in FP32, and the same from every PyTorch.
        golden = {"chapter": chapter, "flags": flags,
                  "loss": [float(f"{x:.9e}") for x in loss],
                  "grad_norm": [float(f"{x:.9e}") for x in grad_norm]}
        (OUT / f"{name}.json").write_text(json.dumps(golden, indent=1) + "\n", encoding="ascii")
        print(f"{name:12}{loss[0]:.6f} {loss[-1]:.6f}"
              f"{deviation(loss32, loss):38.1e} {deviation(norm32, grad_norm):.1e}")


if __name__ == "__main__":
    main()
