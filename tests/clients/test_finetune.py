#!/usr/bin/env python3
"""Chapter 36 beside PyTorch in double, and its folders in peft and transformers.

    test_finetune.py --build build/cpu              skipped (status 77) unless installed
    test_finetune.py --build build/cpu --install    installs them in build/clients first

A GPT-2 of bytes is trained a little, and then tuned on chats, all weights or adapters. The same is done in
double by transformers, chat by chat, without rows. FP32 rounds n times on the longest way, each
time by at most eps: losses may differ by 4 sqrt(n) eps, as in test_transformers.py, and ten times that after
some updates. Mistakes that people made must be seen.
"""

import json
import math
import sys
import tempfile
import unittest
from pathlib import Path

import rounding
from environment import QUIET, TRANSFORMERS, called, enter, run

ARGS = enter("finetune", [*TRANSFORMERS, "numpy", "peft>=0.17"])
import numpy  # noqa: E402
import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from peft import PeftModel  # noqa: E402
from transformers import AutoTokenizer, GPT2LMHeadModel, LlamaForCausalLM  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
import golden  # noqa: E402

L, C, NH, T, V, STEPS, BATCH, LR, R, ALPHA = 2, 128, 4, 64, 256, 6, 4, 5e-3, 4, 16
END = 0xFF
LAYERS = ["attn.c_attn", "attn.c_proj", "mlp.c_fc", "mlp.c_proj"]
TOLERANCE = 10 * rounding.of_loss(L, C, T, 4 * C, V)


def chats(count):
    for i in range(count):
        question, answer = chr(97 + i % 23) * (1 + 7 * i % 9), chr(98 + 3 * i % 22) * (1 + 5 * i % 6)
        yield [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]


def spelled(chat):
    """Tokens, and which are learned as targets."""
    tokens, learned = [], []
    for message in chat:
        answer = message["role"] == "assistant"
        for part, learn in ((f"{message['role']}:\n".encode(), False), (message["content"].encode() + b"\xff", answer)):
            tokens += part
            learned += [learn] * len(part)
    return tokens, learned


def forward(model, w, tokens, adapters, scale):
    """Logits (n,V) of one chat; linear layers are stored (in,out)."""
    w = dict(w)
    for name in {key.removeprefix("base_model.model.").rpartition(".lora_")[0] for key in adapters or ()}:
        a, b = (adapters[f"base_model.model.{name}.lora_{side}.weight"] for side in "AB")
        w[name + ".weight"] = w[name + ".weight"] + scale * (b @ a).T
    return torch.func.functional_call(model, w, tokens[None]).logits[0]


def first_adapters():
    """As the program draws them, rounded to FP32."""
    adapters = {}
    for l in range(L):
        for layer in LAYERS:
            K = 4 * C if layer == "mlp.c_proj" else C
            N = {"attn.c_attn": 3 * C, "mlp.c_fc": 4 * C}.get(layer, C)
            name = f"base_model.model.transformer.h.{l}.{layer}.lora_"
            word, _ = golden.random_bits(1, name + "A.weight", numpy.arange(R * K))
            unit = (word >> numpy.uint64(11)).astype(numpy.float64) * 2.0**-53
            value = ((2 * unit - 1) / math.sqrt(K)).astype(numpy.float32)
            adapters[name + "A.weight"] = torch.from_numpy(value.astype(numpy.float64)).view(R, K)
            adapters[name + "B.weight"] = torch.zeros(N, R, dtype=torch.float64)
    return adapters


def train(model, weights, adapters, mistake=""):
    """The losses of STEPS steps of AdamW, in double. `weights` and `adapters` change."""
    learned = list((adapters or weights).values())
    if mistake == "gradient to W":
        learned += list(weights.values())
    for value in learned:
        value.requires_grad_()
    scale = 1 if mistake == "alpha forgotten" else ALPHA / R
    optimizer = torch.optim.AdamW(learned, LR, (0.9, 0.95), 1e-8, 0.0)
    losses, all_chats = [], [spelled(chat) for chat in chats(BATCH * STEPS)]
    for step in range(STEPS):
        sums, counts = [], []
        for tokens, mask in all_chats[BATCH * step:BATCH * (step + 1)]:
            tokens = torch.tensor(tokens)
            mask = torch.tensor(mask[1:])
            if mistake == "end masked":
                mask = mask & (tokens[1:] != END)
            if mistake == "mask shifted":
                mask = torch.cat([mask[1:], mask[:1]])
            all_losses = F.cross_entropy(forward(model, weights, tokens[:-1], adapters, scale), tokens[1:], reduction="none")
            sums.append(all_losses[mask].sum())
            counts.append(int(mask.sum()))
        mean = sum(sums) / sum(counts)
        if mistake == "mean of means":
            mean = sum(one / count for one, count in zip(sums, counts)) / BATCH
        losses.append(mean.item())
        optimizer.zero_grad()
        mean.backward()
        optimizer.step()
    return losses


class Finetune(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.here = Path(cls.folder.name)
        lines = "".join(json.dumps({"messages": chat}) + "\n" for chat in chats(BATCH * STEPS * 2))
        (cls.here / "chats.jsonl").write_text(lines)
        called(ARGS.programs / "ch06_checkpointing", *QUIET, "--data", ROOT / "tests/golden/text.txt", "--model", "tiny",
               "--layers", L, "--steps", 30, "--save", cls.here / "base")
        cls.losses = {}
        for name, flags in {"full": [], "lora": ["--lora-rank", R, "--lora-alpha", ALPHA,
                                                 "--save-merged", cls.here / "merged"]}.items():
            trace = cls.here / f"{name}.jsonl"
            cls.tune("--batch", BATCH, "--steps", STEPS, "--lr", LR, "--weight-decay", 0, "--save", cls.here / name,
                     "--trace", trace, *flags)
            cls.losses[name] = [float.fromhex(json.loads(line)["loss"]) for line in trace.read_text().splitlines()]

    @classmethod
    def tune(cls, *words, base="base"):
        """A chat in each row, in the order of the file."""
        called(ARGS.programs / "ch36_finetune", *QUIET, "--base", cls.here / base, "--data", cls.here / "chats.jsonl",
               "--pack", "greedy", "--row-documents", 1, *words)

    def theirs(self, name, mistake=""):
        model = GPT2LMHeadModel.from_pretrained(self.here / "base").double().eval()
        weights = {name: value.detach() for name, value in model.named_parameters()}
        return train(model, weights, first_adapters() if name == "lora" else None, mistake)

    def test_in_double(self):
        for name, losses in self.losses.items():
            found = golden.deviation(losses, self.theirs(name))
            print(f"{name}: {found:.1e} of the loss, bound {TOLERANCE:.1e}")
            self.assertLess(found, TOLERANCE)

    def test_mistakes_are_far(self):
        for name, mistakes in {"full": ["end masked", "mask shifted", "mean of means"],
                               "lora": ["end masked", "alpha forgotten", "gradient to W"]}.items():
            for mistake in mistakes:
                found = golden.deviation(self.losses[name], self.theirs(name, mistake))
                print(f"{name}, {mistake}: {found:.1e}")
                self.assertGreater(found, 10 * TOLERANCE)

    def loss_of(self, model):
        """The mean loss of all chats in a model of transformers."""
        total = count = 0
        model = model.double().eval()
        with torch.no_grad():
            for tokens, mask in map(spelled, chats(BATCH * STEPS)):
                tokens, mask = torch.tensor(tokens), torch.tensor(mask[1:])
                losses = F.cross_entropy(model(tokens[None, :-1]).logits[0], tokens[1:], reduction="none")
                total, count = total + losses[mask].sum().item(), count + int(mask.sum())
        return total / count

    def exchanged(self, base, lora, merged, kind):
        """peft opens our adapter, transformers our merged model, and we what peft has saved."""
        adapted = PeftModel.from_pretrained(kind.from_pretrained(self.here / base), self.here / lora)
        own = self.loss_of(adapted)
        both = self.loss_of(kind.from_pretrained(self.here / merged))
        alone = self.loss_of(kind.from_pretrained(self.here / base))
        print(f"peft, {base}: alone {alone:.6f}, adapter {own:.6f}, merged {both:.6f}")
        self.assertLess(abs(own - both), TOLERANCE * own)
        self.assertGreater(abs(own - alone), 100 * TOLERANCE * own)
        adapted.float().save_pretrained(self.here / "again")
        reports = []
        for name in (lora, "again"):
            report = self.here / "report.json"
            steps = STEPS if name == lora else 0
            self.tune("--load", self.here / name, "--steps", steps, "--report", report, base=base)
            reports.append(json.loads(report.read_text())["val_loss"])
        self.assertEqual(*reports)

    def test_peft_opens_our_adapter_and_we_open_theirs(self):
        self.exchanged("base", "lora", "merged", GPT2LMHeadModel)

    def test_peft_has_seven_layers_of_a_llama(self):
        called(ARGS.programs / "ch06_checkpointing", *QUIET, "--data", ROOT / "tests/golden/text.txt", "--model", "llama-tiny",
               "--layers", L, "--steps", 30, "--save", self.here / "llama")
        self.tune("--batch", BATCH, "--steps", STEPS, "--lr", LR, "--lora-rank", R, "--lora-alpha", ALPHA, "--save",
                  self.here / "stack", "--save-merged", self.here / "whole", base="llama")
        self.exchanged("llama", "stack", "whole", LlamaForCausalLM)

    def test_transformers_spells_chats_by_our_template(self):
        made = self.here / "tokenizer"
        called(ARGS.programs / "ch24_tokenizer", "train", "--data", ROOT / "tests/golden/text.txt", "--vocab", 300, "--out", made)
        for form, special in {"plain": [], "chatml": ["<|im_start|>", "<|im_end|>"]}.items():
            if special:
                file = made / "tokenizer.json"
                content = json.loads(file.read_text())
                for id, text in enumerate(special, 300):
                    content["added_tokens"].append({**content["added_tokens"][0], "id": id, "content": text})
                file.write_text(json.dumps(content))
            base, report = f"base of {form}", self.here / "report.json"
            called(ARGS.programs / "ch06_checkpointing", *QUIET, "--data", ROOT / "tests/golden/text.txt", "--model", "tiny",
                   "--layers", 1, "--tokenizer", made, "--steps", 1, "--save", self.here / base)
            self.tune("--steps", 1, "--save", self.here / form, "--report", report, base=base)
            theirs = AutoTokenizer.from_pretrained(self.here / form)

            def ids(text):
                return theirs.encode(text, add_special_tokens=False)

            begin, head, end, tail = ("<|im_start|>", "\n", "<|im_end|>", "\n") if special else ("", ":\n", "<|endoftext|>", "")
            tokens = learned = 0
            for chat in chats(BATCH * STEPS * 2):
                found = theirs.apply_chat_template(chat, return_dict=True, return_assistant_tokens_mask=True)
                parts = [(part, part in (message["content"], end) and message["role"] == "assistant")
                         for message in chat for part in (begin, message["role"] + head, message["content"], end, tail)]
                wanted = [(id, int(learn)) for part, learn in parts for id in ids(part)]
                self.assertEqual(list(zip(found["input_ids"], found["assistant_masks"])), wanted)
                tokens += len(wanted)
                learned += sum(learn for _, learn in wanted)
            counted = json.loads(report.read_text())["extra"]["chats"]
            self.assertEqual((counted["tokens"], counted["learned"], counted["cut"]), (tokens, learned, 0))


if __name__ == "__main__":
    run(Finetune)
