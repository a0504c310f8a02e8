#!/usr/bin/env python3
"""What Hugging Face's transformers make of models, for test_transformers.py, which runs this file
with an environment that has them.

    gpt2.py JOBS    a JSON list of jobs; prints a JSON list, one answer for each

A job is {"make": DIR, "config": {...}, ...}, which writes a random model, or {"load": DIR}. With
{"change": OTHER, "with": {...}} DIR first becomes a copy of OTHER with another config.json. Each
answers with the loss of the model in DIR on "text", in sequences of so many "tokens".
"""

import json
import shutil
import sys
from pathlib import Path

import torch
import torch.nn.functional as F
import transformers
from transformers import GPT2Config, GPT2LMHeadModel

transformers.logging.set_verbosity_error()
DTYPES = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32}


def validation_rows(path, T):
    """Tokens and targets as Text::draw_validation (common/data/text.cpp) draws them: (n,T) each."""
    with open(path, "rb") as file:
        text = file.read()
    held_out = text[len(text) - len(text) // 10 :]
    count = min((len(held_out) - 1) // T, max(1, 65536 // T))
    room, gaps = len(held_out) - 1 - T, max(1, count - 1)
    starts = [i * room // gaps for i in range(count)]
    rows = torch.tensor([list(held_out[s : s + T + 1]) for s in starts])
    return rows[:, :-1], rows[:, 1:]


@torch.no_grad()
def mean_loss(model, path, T, dtype):
    """Of the validation, computed in `dtype`."""
    model = model.to(dtype).eval()
    tokens, targets = validation_rows(path, T)
    total = 0.0
    for some, wanted in zip(tokens.split(64), targets.split(64)):
        logits = model(some).logits.double().flatten(0, 1)
        total += F.cross_entropy(logits, wanted.flatten(), reduction="sum").item()
    return total / targets.numel()


def answer(model, job):
    """Its loss in FP32 and in FP64, and whether the head is the embedding."""
    losses = {name: mean_loss(model, job["text"], job["tokens"], dtype)
              for name, dtype in (("f32", torch.float32), ("f64", torch.float64))}
    tied = model.lm_head.weight.data_ptr() == model.transformer.wte.weight.data_ptr()
    return {"version": transformers.__version__, "tied": tied, **losses}


def load(job):
    if "change" in job:
        shutil.copytree(job["change"], job["load"])
        path = Path(job["load"]) / "config.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **job["with"]}))
    # The default attention of 4.57 pays no heed to scale_attn_weights.
    how = {"attn_implementation": "eager"} if "change" in job else {}
    model, info = GPT2LMHeadModel.from_pretrained(job["load"], output_loading_info=True, **how)
    wrong = {key: sorted(map(str, value)) for key, value in info.items() if value}
    start = torch.tensor([[84, 104, 101]])  # "The"
    text = model.generate(start, max_new_tokens=4, do_sample=False,
                          pad_token_id=model.config.vocab_size - 1)
    return {**answer(model, job), "wrong": wrong, "generated": text.shape[1] - start.shape[1]}


@torch.no_grad()
def make(job):
    """Every weight is random, and so large that no part of the model is close to linear."""
    torch.manual_seed(1)
    model = GPT2LMHeadModel(GPT2Config(**job["config"], bos_token_id=None, eos_token_id=None))
    for name, weight in model.named_parameters():
        weight.normal_(0, 0.3)
        if "ln_" in name and name.endswith(".weight"):
            weight += 1
    model = model.to(DTYPES[job.get("dtype", "f32")])
    saved = model.transformer if job.get("without_head") else model
    saved.save_pretrained(job["make"], max_shard_size=job.get("shards", "5GB"))
    return answer(model, job)


def main():
    torch.set_num_threads(1)  # others may run beside this
    torch.use_deterministic_algorithms(True)
    jobs = json.loads(sys.argv[1])
    print(json.dumps([load(job) if "load" in job else make(job) for job in jobs]))


if __name__ == "__main__":
    main()
