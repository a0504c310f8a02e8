"""What Hugging Face's transformers make of models. A test imports it in an environment that has them.

A job says what model it is: its "kind" and "config". make() writes a random one into a folder, load() reads
one. With "change" the folder first becomes a copy of another, with config.json changed by "with". With
"confuse" rows of a loaded model change places. Both answer with the loss on "text", in sequences of so many
"tokens".
"""

import copy
import json
import shutil
import struct
from pathlib import Path

import rounding
import torch
import torch.nn.functional as F
import transformers
from transformers import (AutoModelForCausalLM, GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM,
                          MixtralConfig, MixtralForCausalLM)

transformers.logging.set_verbosity_error()
torch.set_num_threads(1)  # others may run beside this
torch.use_deterministic_algorithms(True)
KINDS = {"gpt2": (GPT2Config, GPT2LMHeadModel), "llama": (LlamaConfig, LlamaForCausalLM),
         "mixtral": (MixtralConfig, MixtralForCausalLM)}
TOKENS = 16  # of each sequence
DTYPES = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32}


def tolerance(config, loss):
    C = config.get("n_embd", config.get("hidden_size"))
    L = config.get("n_layer", config.get("num_hidden_layers"))
    return rounding.of_loss(L, C, TOKENS, config.get("intermediate_size", 4 * C), config["vocab_size"]) * loss


def validation_rows(text, T):
    """Tokens and targets as Text::draw_validation (common/data/text.cpp) draws them: (n,T) each."""
    held_out = text[len(text) - len(text) // 10 :]
    count = min((len(held_out) - 1) // T, max(1, 65536 // T))
    room, gaps = len(held_out) - 1 - T, max(1, count - 1)
    starts = [i * room // gaps for i in range(count)]
    rows = torch.tensor([list(held_out[s : s + T + 1]) for s in starts])
    return rows[:, :-1], rows[:, 1:]


def documents_of(path):
    """Those of Megatron's files, of 16 bits a token: the .idx has their lengths after a head of 34 bytes."""
    index = Path(path).with_suffix(".idx").read_bytes()
    count, = struct.unpack_from("<Q", index, 18)
    ids = torch.frombuffer(bytearray(Path(path).read_bytes()), dtype=torch.uint16).long()
    return ids.split(list(struct.unpack_from(f"<{count}i", index, 34)))


def held_out_rows(path, T, most=65536):
    """Tokens and targets of the last tenth of the documents, until there are so many targets. A row is a piece,
    which does not see the piece before it (chapters/26_packing/plan.h); places without a target hold -100."""
    documents, pieces, targets = documents_of(path), [], 0
    for document in documents[len(documents) - len(documents) // 10:]:
        if targets >= most:
            break
        targets += len(document) - 1
        pieces += [document[at:at + T + 1] for at in range(0, len(document) - 1, T)]
    pieces.sort(key=len)  # mean_loss() cuts off columns without a target
    tokens, wanted = torch.zeros(len(pieces), T, dtype=torch.long), torch.full((len(pieces), T), -100)
    for i, piece in enumerate(pieces):
        tokens[i, :len(piece) - 1], wanted[i, :len(piece) - 1] = piece[:-1], piece[1:]
    return tokens, wanted


@torch.no_grad()
def mean_loss(model, rows, dtype):
    """The mean loss of tokens and targets, computed in `dtype`."""
    model = model.to(dtype).eval()
    model.set_experts_implementation("eager")  # grouped products know no FP64
    tokens, targets = rows
    total = 0.0
    for some, wanted in zip(tokens.split(64), targets.split(64)):
        width = (wanted >= 0).any(0).sum()
        logits = model(some[:, :width]).logits.double().flatten(0, 1)
        total += F.cross_entropy(logits, wanted[:, :width].flatten(), reduction="sum").item()
    return total / (targets >= 0).sum().item()


def answer(model, job):
    """Its loss in FP32 and in FP64, and whether the head is the embedding."""
    rows = validation_rows(job["text"].read_bytes(), job["tokens"])
    losses = {name: mean_loss(model, rows, dtype)
              for name, dtype in (("f32", torch.float32), ("f64", torch.float64))}
    tied = model.lm_head.weight.data_ptr() == model.get_input_embeddings().weight.data_ptr()
    return {"version": transformers.__version__, "tied": tied, **losses}


@torch.no_grad()
def confuse(model, how):
    """Puts rows of a LLaMA in places that a reader might take for the right ones."""
    config = model.config
    heads, groups = config.num_attention_heads, config.num_key_value_heads
    for layer in model.model.layers:
        attention, mlp = layer.self_attn, layer.mlp
        if how == "interleaved RoPE":  # pairs of neighbors, where they are HS / 2 apart
            for projection, count in ((attention.q_proj, heads), (attention.k_proj, groups)):
                rows = projection.weight.unflatten(0, (count, -1, 2)).transpose(1, 2)
                projection.weight.copy_(rows.reshape(projection.weight.shape))
        if how == "gate and up swapped":
            gate = mlp.gate_proj.weight.clone()
            mlp.gate_proj.weight.copy_(mlp.up_proj.weight)
            mlp.up_proj.weight.copy_(gate)
        if how == "groups in another order":
            for projection in (attention.k_proj, attention.v_proj):
                rows = projection.weight.unflatten(0, (groups, -1)).flip(0)
                projection.weight.copy_(rows.reshape(projection.weight.shape))


@torch.no_grad()
def confuse_experts(model, how):
    """The same for a Mixtral. The matrices of all experts are one tensor."""
    for layer in model.model.layers:
        moe = layer.mlp
        if how == "router reversed":
            moe.gate.weight.copy_(moe.gate.weight.flip(0))
        if how == "w1 and w3 swapped":
            moe.experts.gate_up_proj.copy_(moe.experts.gate_up_proj.unflatten(1, (2, -1)).flip(1).flatten(1, 2))
        if how == "experts in another order":
            for weight in (moe.experts.gate_up_proj, moe.experts.down_proj):
                weight.copy_(weight.flip(0))


def load(folder, job):
    if "change" in job:
        shutil.copytree(job["change"], folder)
        path = folder / "config.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **job["with"]}))
    _, kind = KINDS[job["kind"]]
    model, info = kind.from_pretrained(folder, output_loading_info=True)
    if "confuse" in job:
        (confuse_experts if job["kind"] == "mixtral" else confuse)(model, job["confuse"])
    wrong = {key: sorted(map(str, value)) for key, value in info.items() if value}
    start = torch.tensor([[84, 104, 101]])  # "The"
    text = model.generate(start, max_new_tokens=4, do_sample=False,
                          pad_token_id=model.config.vocab_size - 1)
    return {**answer(model, job), "wrong": wrong, "generated": text.shape[1] - start.shape[1]}


@torch.no_grad()
def make(folder, job):
    """Every weight is random, and so large that no part of the model is close to linear."""
    torch.manual_seed(1)
    config, kind = KINDS[job["kind"]]
    model = kind(config(**job["config"], bos_token_id=None, eos_token_id=None))
    for name, weight in model.named_parameters():
        weight.normal_(0, 0.3)
        if ("ln_" in name or "norm" in name) and name.endswith(".weight"):
            weight += 1
    narrow = copy.deepcopy(model).to(DTYPES[job.get("dtype", "f32")])
    saved = narrow.base_model if job.get("without_head") else narrow
    saved.save_pretrained(folder, max_shard_size=job.get("shards", "5GB"))
    # Not `narrow` itself: it has the frequencies of RoPE in 16 bits, too, which no file holds.
    for wide, rounded in zip(model.parameters(), narrow.parameters()):
        wide.copy_(rounded)
    return answer(model, job)


def loss_of_documents(folder, path, T):
    """The loss in FP64 on the documents that chapter 26 holds out of a file of Megatron."""
    return mean_loss(AutoModelForCausalLM.from_pretrained(folder), held_out_rows(path, T), torch.float64)
