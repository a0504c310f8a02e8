#!/usr/bin/env python3
"""Decoding beside Hugging Face's transformers and beside a floor, in turns: GPT-2 124M with random weights.

    chapters/31_generate/proof/peers.py --build build/cpu [--rounds 5] [--tokens 32] [--context 256]

Wants torch and transformers, and a quiet machine. The floor is the time to read, once a token, the weights and
the cached keys and values at the speed that `bench_operations --read` reads as many bytes in the same round. An
array that fits the last cache would be read faster. Ladder's time is that of its report. That of transformers
is the time for all tokens, less that for one. Both write greedily.
"""
import argparse
import json
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

BARS = {"floor, batch 1": 0.85, "to transformers, batch 1": 1.3, "batch 8 to batch 1": 5, "to transformers, batch 8": 1.8}


def ours(args, here, prompt, batch):
    """Tokens a second."""
    (here / "p.jsonl").write_text((json.dumps({"prompt": " ".join(map(str, prompt))}) + "\n") * batch)
    command = [args.build / "bin/ch31_generate", "--load", here, "--prompts", here / "p.jsonl", "--tokens", "ids", "--out",
               here.parent / "out.jsonl", "--temperature", 0, "--max-tokens", args.tokens + 1, "--batch", batch, "--threads",
               args.threads, "--prefill-tokens", batch * len(prompt), "--report", here.parent / "report.json"]
    subprocess.run([*map(str, command)], check=True, capture_output=True)
    return json.loads((here.parent / "report.json").read_text())["decode_tokens_per_second"]


def theirs(args, model, prompt, batch):
    import torch

    def seconds(count):
        begin = time.perf_counter()
        model.generate(input_ids=ids, attention_mask=torch.ones_like(ids), do_sample=False, min_new_tokens=count,
                       max_new_tokens=count, pad_token_id=0)
        return time.perf_counter() - begin
    ids = torch.tensor([prompt] * batch)
    with torch.inference_mode():
        return batch * args.tokens / (seconds(args.tokens + 1) - seconds(1))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=Path, default=Path("build/cpu"))
    for flag, default in (("--rounds", 5), ("--tokens", 32), ("--context", 256), ("--threads", 2)):
        parser.add_argument(flag, type=int, default=default)
    args = parser.parse_args()
    import torch
    import transformers

    torch.manual_seed(1)
    torch.set_num_threads(args.threads)
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(bos_token_id=None, eos_token_id=None)).eval()
    prompt = [(7 * i * i + 1) % 50257 for i in range(args.context - args.tokens // 2)]
    read = 4 * (12 * 12 * 768 * 768 + 50257 * 768 + 2 * 12 * 768 * args.context)  # bytes a token; the head is tied
    found = {name: [] for name in BARS}
    print(f"torch {torch.__version__}, transformers {transformers.__version__}, {args.threads} threads", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        here = Path(folder) / "model"
        model.save_pretrained(here)
        for turn in range(args.rounds):
            speed = {(who, batch): run(args, what, prompt, batch) for batch in (1, 8)
                     for who, run, what in (("ours", ours, here), ("theirs", theirs, model))}
            said = subprocess.run([args.build / "bin/bench_operations", "--read", str(read >> 20), "--threads", str(args.threads)],
                                  check=True, capture_output=True, text=True).stdout
            floor = read / 1e9 / json.loads(said)["read"]
            ratios = (speed["ours", 1] * floor, speed["ours", 1] / speed["theirs", 1], speed["ours", 8] / speed["ours", 1],
                      speed["ours", 8] / speed["theirs", 8])
            for name, ratio in zip(BARS, ratios):
                found[name].append(ratio)
            print(f"round {turn + 1}: floor {1e3 * floor:.1f} ms; tokens/s", {f"{w} {b}": round(s, 1) for (w, b), s in speed.items()},
                  flush=True)
    for name, ratios in found.items():
        print(f"{name:26} {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f}), bar {BARS[name]}")


if __name__ == "__main__":
    main()
