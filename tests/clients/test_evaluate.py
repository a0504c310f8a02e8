#!/usr/bin/env python3
"""Chapter 35 beside lm-eval, on the same folders and the same questions.

    test_evaluate.py --build build/cpu              skipped (status 77) unless installed
    test_evaluate.py --build build/cpu --install    installs lm-eval in build/clients first

lm-eval computes in FP64. FP32 rounds n times on the longest way through a model, each time by at most
eps = 2^-24 of a value, in either direction: four standard deviations of such a walk are 4 sqrt(n) eps of
the value. A log-likelihood of k tokens is a sum of k logits less k logarithms of sums. The values that
round are at most about as large as -log p and log V together, so the tolerance of the sum is
4 sqrt(n) eps (|sum| + k log V). Verdicts are equal. Tasks are JSON files, and nothing comes from a hub.
"""

import json
import math
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import rounding
from environment import TRANSFORMERS, called, enter, run

ARGS = enter("evaluate", [*TRANSFORMERS, "lm-eval[hf]==0.4.13"])
import lm_eval  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402
from lm_eval.models.huggingface import HFLM  # noqa: E402

WINDOW, VOCAB, LAYERS, C, F = 160, 400, 2, 64, 96  # of random models
END = "<|endoftext|>"
SIZES = {"vocab_size": VOCAB, "bos_token_id": VOCAB - 1, "eos_token_id": VOCAB - 1, "initializer_range": 0.2}
CONFIGS = {
    "gpt2": {"n_layer": LAYERS, "n_embd": C, "n_head": 4, "n_positions": WINDOW, **SIZES},
    "llama": {"num_hidden_layers": LAYERS, "hidden_size": C, "num_attention_heads": 4, "num_key_value_heads": 2,
              "intermediate_size": F, "max_position_embeddings": WINDOW, "rms_norm_eps": 1e-5,
              "tie_word_embeddings": False, **SIZES},
}
TRAINED = {
    "gpt2": ["--model", "small", "--layers", "2", "--heads", "4", "--channels", "64", "--seq-len", str(WINDOW)],
    "llama": ["--model", "llama-nano", "--layers", "2", "--seq-len", str(WINDOW)],
}
WORDS = "seven rivers run to the sea and the sea is not full".split()


def ranked():
    """Every rule of a pair: blanks at the end, no context, the prefix in the text, letters of several bytes, and
    contexts that the window cuts."""
    long = " ".join(WORDS * 30)
    contexts = ["seven rivers run", "Question: what runs?\nAnswer:", "A: the sea \t\n", "the sea\u00a0is\u3000", "",
                f"{END}the sea", f"{long} to the", "caf\u00e9 \u6d77", "the sea is not  ", long]
    choices = [["to the sea", "to a sea", "t"], ["rivers", "the rivers run to the sea", "\u6d77\u6d77 \u6d77"],
               [f"{END} the sea", "full", "is not full"], ["f\u00fcll", "\u00e9\u00e9\u00e9\u00e9\u00e9", "not"]]
    return [{"context": context, "choices": some, "gold": (i + j) % 3}
            for i, context in enumerate(contexts) for j, some in enumerate(choices)]


def files():
    sentence = " ".join(WORDS)
    return {
        "ranked": ranked(),
        "joined": [{**line, "delimiter": "", "choices": [" " + c for c in line["choices"]]} for line in ranked()[:12]],
        "match": [{"context": " ".join(WORDS[:i]), "target": " " + WORDS[i]} for i in range(1, len(WORDS))],
        "rolling": [{"text": (sentence + ". ") * n + end} for n, end in
                    ((1, ""), (40, "\u6d77"), (9, "and so on"), (25, f"{END}then"))] + [{"text": "s"}, {"text": f"{END}sea"}],
        "texts": [{"context": " ".join(WORDS[:i]), "target": " " + WORDS[i], "until": [" ", "\n"], "max_tokens": 12}
                  for i in range(1, len(WORDS))] + [{"context": sentence * 30, "target": "x", "until": [" ", "\n"], "max_tokens": 12}],
    }


def tasks(here, names, shots=0):
    """The same for lm-eval. Without fewshot_split it leaves a question among its own examples."""
    ways = {
        "ranked": {"output_type": "multiple_choice", "doc_to_text": "context", "doc_to_choice": "choices",
                   "doc_to_target": "gold", "metric_list": [{"metric": m} for m in ("acc", "acc_norm", "acc_bytes")]},
        "match": {"output_type": "loglikelihood", "doc_to_text": "context", "doc_to_target": "target",
                  "metric_list": [{"metric": "acc"}, {"metric": "perplexity"}]},
        "rolling": {"output_type": "loglikelihood_rolling", "doc_to_text": "", "doc_to_target": "text",
                    "metric_list": [{"metric": "bits_per_byte"}]},
        "texts": {"output_type": "generate_until", "doc_to_text": "context", "doc_to_target": "target",
                  "generation_kwargs": {"until": [" ", "\n"], "max_gen_toks": 12, "do_sample": False},
                  "metric_list": [{"metric": "exact_match"}]},
    }
    ways["joined"] = {**ways["ranked"], "target_delimiter": ""}
    return [{"task": name, "dataset_path": "json", "test_split": "test", "fewshot_split": "test", "num_fewshot": shots,
             "dataset_kwargs": {"data_files": {"test": str(here / f"{name}.jsonl")}},
             "fewshot_config": {"sampler": "first_n"}, **ways[name]} for name in names]


class Evaluate(unittest.TestCase):
    worst = 0.0  # of all differences, as a part of the tolerance

    @classmethod
    def setUpClass(cls):
        transformers.logging.set_verbosity_error()
        torch.set_num_threads(1)
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.here = Path(folder.name)
        text = cls.here / "text.txt"
        text.write_text("".join(f"{i} {' '.join(WORDS[i % 4:])}. Question: what runs?\nAnswer: rivers {i}\n"
                                for i in range(300)) + "caf\u00e9 \u6d77 " * 20)
        called(ARGS.programs / "ch24_tokenizer", "train", "--data", text, "--vocab", VOCAB, "--out", cls.here / "bpe")
        for kind, how in TRAINED.items():
            called(ARGS.programs / "ch02_adamw", "--data", text, "--tokenizer", cls.here / "bpe", *how, "--steps", 30, "--batch", 4,
                   "--lr", 0.005, "--threads", 1, "--quiet", "--save", cls.here / f"{kind} trained")
        kinds = {"gpt2": (transformers.GPT2Config, transformers.GPT2LMHeadModel),
                 "llama": (transformers.LlamaConfig, transformers.LlamaForCausalLM)}
        tokenizer = transformers.AutoTokenizer.from_pretrained(cls.here / "gpt2 trained")
        for kind, (config, model) in kinds.items():
            torch.manual_seed(1)
            made = model(config(**CONFIGS[kind]))
            made.save_pretrained(cls.here / f"{kind} random")
            tokenizer.save_pretrained(cls.here / f"{kind} random")
        for name, lines in files().items():
            (cls.here / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        cls.folders = [f"{kind} {weights}" for kind in CONFIGS for weights in ("random", "trained")]
        cls.addClassCleanup(lambda: print(f"the largest difference is {Evaluate.worst:.2f} of the tolerance"))

    def ours(self, folder, names, *more):
        """Lines by task, and the scores of each."""
        out, report = self.here / "out.jsonl", self.here / "report.json"
        called(ARGS.programs / "ch35_evaluate", "--load", self.here / folder, "--tasks", *(self.here / f"{n}.jsonl" for n in names),
               "--seq-len", WINDOW, "--out", out, "--report", report, "--threads", 1, *more)
        lines = [json.loads(line) for line in out.read_text().splitlines()]
        scores = json.loads(report.read_text())["files"]
        return {name: ([line for line in lines if line["file"] == i], scores[i]["scores"]) for i, name in enumerate(names)}

    def theirs(self, folder, names, shots=0, **how):
        model = transformers.AutoModelForCausalLM.from_pretrained(self.here / folder).double().eval()
        tokenizer = transformers.AutoTokenizer.from_pretrained(self.here / folder)
        model = HFLM(pretrained=model, tokenizer=tokenizer, max_length=WINDOW, batch_size=3, logits_cache=False, **how)
        return lm_eval.simple_evaluate(model=model, tasks=tasks(self.here, names, shots), bootstrap_iters=0, log_samples=True,
                                       device="cpu")

    def tolerance(self, folder, sum_, tokens):
        config = json.loads(next((self.here / folder).glob("**/config.json")).read_text())
        width, layers = (config.get(a, config.get(b)) for a, b in (("n_embd", "hidden_size"), ("n_layer", "num_hidden_layers")))
        part = rounding.of_loss(layers, width, WINDOW, config.get("intermediate_size", 4 * width), VOCAB)
        return part * (abs(sum_) + tokens * math.log(VOCAB))

    def compare(self, folder, names, shots=0, flags=(), **how):
        """Every log-likelihood, every verdict, and the scores."""
        mine = self.ours(folder, names, "--shots", shots, *flags)
        his = self.theirs(folder, names, shots, **how)
        for name in names:
            lines, scores = mine[name]
            samples = sorted(his["samples"][name], key=lambda sample: sample["doc_id"])
            self.assertEqual(len(lines), len(samples))
            for line, sample in zip(lines, samples):
                self.compare_line(folder, name, line, sample)
            self.compare_scores(name, scores, his["results"][name])
        return mine, his

    def compare_line(self, folder, name, line, sample):
        where = (name, sample["doc_id"], sample["arguments"])
        if name == "texts":
            self.assertEqual(line["text"], sample["resps"][0][0], where)
            self.assertEqual(line["scores"]["exact_match"], sample["exact_match"], where)
            return
        for i, (one, ours, tokens) in enumerate(zip(sample["resps"], line["loglikelihoods"], line["tokens"])):
            theirs, greedy = (one[0], None) if name == "rolling" else one[0]
            allowed = self.tolerance(folder, theirs, tokens)
            Evaluate.worst = max(Evaluate.worst, abs(ours - theirs) / allowed)
            self.assertLessEqual(abs(ours - theirs), allowed, where)
            if greedy is not None:
                self.assertEqual(line["greedy"][i], greedy, where)
        self.assertEqual(len(sample["resps"]), len(line["loglikelihoods"]))
        for score in ("acc", "acc_norm", "acc_bytes"):
            if score in sample and name != "match":
                self.assertEqual(line["scores"][score], sample[score], (score, *where))

    def compare_scores(self, name, scores, results):
        same = {"ranked": ("acc", "acc_norm", "acc_bytes"), "joined": ("acc", "acc_norm", "acc_bytes"), "texts": ("exact_match",)}
        for score in same.get(name, ()):
            self.assertAlmostEqual(scores[score]["value"], results[f"{score},none"], delta=1e-12)
            if results[f"{score}_stderr,none"] != "N/A":
                self.assertAlmostEqual(scores[score]["error"], results[f"{score}_stderr,none"], delta=1e-12)
        if name == "match":
            self.assertAlmostEqual(scores["greedy"]["value"], results["acc,none"], delta=1e-12)
            self.assertAlmostEqual(math.exp(scores["nats"]["value"]) / results["perplexity,none"], 1, delta=1e-4)
        if name == "rolling":
            self.assertAlmostEqual(scores["bits_per_byte"]["value"], results["bits_per_byte,none"], delta=1e-4)

    def test_all_kinds(self):
        for folder in self.folders:
            with self.subTest(folder):
                self.compare(folder, list(files()))

    def test_examples(self):
        for folder in ("gpt2 random", "llama trained"):
            with self.subTest(folder):
                self.compare(folder, ["ranked", "joined", "match", "texts"], shots=2)

    def test_a_tokenizer_that_begins_each_text(self):
        """As LLaMA's: its post-processor puts a token first. Ours is told by --add-bos."""
        folder = self.here / "llama bos"
        shutil.copytree(self.here / "llama random", folder)
        path = folder / "tokenizer.json"
        made = json.loads(path.read_text())
        token = {"SpecialToken": {"id": END, "type_id": 0}}
        made["post_processor"] = {"type": "TemplateProcessing", "single": [token, {"Sequence": {"id": "A", "type_id": 0}}], "pair": [],
                                  "special_tokens": {END: {"id": END, "ids": [VOCAB - 1], "tokens": [END]}}}
        path.write_text(json.dumps(made))
        mine, _ = self.compare("llama bos", ["ranked", "match", "rolling"], flags=["--add-bos"])
        without = self.ours("llama bos", ["ranked"])["ranked"][0]
        changed = sum(a["loglikelihoods"] != b["loglikelihoods"] for a, b in zip(mine["ranked"][0], without))
        self.assertGreater(changed, len(without) // 2)

    def test_other_conventions_would_be_seen(self):
        """A blank that is missing, and pieces that are encoded apart: by more than rounding."""
        his = self.theirs("gpt2 random", ["ranked"])["samples"]["ranked"]
        tokenizer = transformers.AutoTokenizer.from_pretrained(self.here / "gpt2 random")
        ids = lambda text: " ".join(map(str, tokenizer(text).input_ids))  # noqa: E731
        (self.here / "blank.jsonl").write_text("".join(json.dumps({**line, "delimiter": ""}) + "\n" for line in ranked()))
        (self.here / "apart.jsonl").write_text("".join(
            json.dumps({**line, "context": ids(line["context"]), "choices": [f"{ids(' ')} {ids(c)}" for c in line["choices"]]}) + "\n"
            for line in ranked()))
        for name, how in (("blank", []), ("apart", ["--tokens", "ids", "--prefix-token", VOCAB - 1])):
            lines, seen = self.ours("gpt2 random", [name], *how)[name][0], 0
            for line, sample in zip(lines, sorted(his, key=lambda one: one["doc_id"])):
                for ours, tokens, one in zip(line["loglikelihoods"], line["tokens"], sample["resps"]):
                    seen += abs(ours - one[0][0]) > self.tolerance("gpt2 random", one[0][0], tokens)
            self.assertGreater(seen, 60, name)

    def test_their_questions_can_be_read(self):
        """proof/convert.py makes a file of tasks of what --log_samples writes: the same log-likelihoods."""
        convert = Path(__file__).resolve().parents[2] / "chapters/35_evaluate/proof/convert.py"
        his = self.theirs("gpt2 trained", ["ranked", "match", "rolling", "texts"], shots=0)
        for name in ("ranked", "match", "rolling", "texts"):
            logged = self.here / f"samples_{name}.jsonl"
            logged.write_text("".join(json.dumps(sample, default=str) + "\n" for sample in his["samples"][name]))
            done = subprocess.run([sys.executable, convert, logged, self.here / f"back {name}.jsonl"], capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stderr)
            again, before = (self.ours("gpt2 trained", [n])[n] for n in (f"back {name}", name))
            key = "text" if name == "texts" else "loglikelihoods"
            self.assertEqual([line[key] for line in again[0]], [line[key] for line in before[0]], name)
            self.assertEqual(again[1], before[1], name)


if __name__ == "__main__":
    run(Evaluate)
