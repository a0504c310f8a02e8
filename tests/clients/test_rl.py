#!/usr/bin/env python3
"""Chapter 37 beside trl.

    test_rl.py --build build/cpu              skipped (status 77) unless installed
    test_rl.py --build build/cpu --install    installs it in build/clients first

A GPT-2 of bytes learns the form of answers. Then both take steps of plain gradient descent from the same weights:
DPO on the same pairs, GRPO on the answers that ch37_rl has drawn and written. trl's own trainers compute the loss, and
PyTorch its gradient. Both round: a token's log-probability is off by at most 2 * 4 sqrt(n) eps log V, as in
test_transformers.py, ten times that after some updates; a loss by that times the sum of its tokens' weights. Other
flags of trl, which people take for the same, must be seen.
"""

import json
import logging
import math
import tempfile
import unittest
import warnings
from pathlib import Path

import rounding
from environment import QUIET, TRANSFORMERS, called, enter, run

ARGS = enter("rl", [*TRANSFORMERS, "numpy", "trl==1.16.*"])
import torch  # noqa: E402
from datasets import Dataset  # noqa: E402
from tokenizers import Tokenizer, models  # noqa: E402
from transformers import GPT2LMHeadModel, PreTrainedTokenizerFast  # noqa: E402
from trl import DPOConfig, DPOTrainer, GRPOConfig, GRPOTrainer  # noqa: E402

L, C, T, V, END, BETA, BATCH, GROUP, LONGEST, STEPS = 2, 128, 64, 256, 0xFF, 0.1, 4, 4, 8, 8
TOLERANCE = 10 * 2 * rounding.of_loss(L, C, T, 4 * C, V)
RATES = {"dpo": 0.3, "dpo-norm": 0.3, "ipo": 0.01, "grpo": 0.03}
# The sum of the weights of all tokens is at most this.
WEIGHTS = {"dpo": 2 * BETA * LONGEST, "dpo-norm": 2 * BETA, "ipo": 4 * (1 / (2 * BETA) + 1), "grpo": 2}
THEIRS = {"dpo": "sigmoid", "dpo-norm": "sigmoid_norm", "ipo": "ipo"}
GRPO = {"std": {}, "mean": {"scale_rewards": "none", "loss_type": "dr_grpo"}, "kl": {"beta": 0.2, "use_bias_correction_kl": False},
        "warm": {"temperature": 0.7}}
OURS = {"std": [], "mean": ["--advantage", "mean"], "kl": ["--kl", 0.2], "warm": ["--draw-temperature", 0.7]}


def tasks():
    """Prompts of one length: transformers counts the positions of a padded prompt from its padding on."""
    for i in range(60):
        yield f"{i % 7}+{i * i % 9}", ["46", "7", "123"][i * 7 % 11 % 3]


def spelled(prompt):
    return [*b"user:\n", *prompt.encode(), END, *b"assistant:\n"]


def answer_of(text):
    return [*text.encode(), END]


def tokenizer():
    names = {f"<{i}>": i for i in range(V)}
    return PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.WordLevel(names, "<0>")), eos_token=f"<{END}>")


def descend(model, loss_of, rate):
    """Losses, and norms of gradients, of STEPS steps."""
    losses, norms = [], []
    for step in range(STEPS):
        model.zero_grad()
        loss = loss_of(step)
        loss.backward()
        with torch.no_grad():
            norms.append(math.sqrt(sum(p.grad.double().square().sum().item() for p in model.parameters())))
            for p in model.parameters():
                p -= rate * p.grad
        losses.append(loss.item())
    return losses, norms


class Rl(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        torch.set_num_threads(1)  # others may run beside this
        warnings.simplefilter("ignore")
        logging.disable(logging.WARNING)
        cls.folder = tempfile.TemporaryDirectory()
        cls.here = Path(cls.folder.name)
        all_tasks = list(tasks())
        others = all_tasks[1:] + all_tasks[:1]
        cls.pairs = [{"prompt": prompt, "chosen": answer, "rejected": other + "0"}
                     for (prompt, answer), (_, other) in zip(all_tasks, others)]
        cls.write("chats.jsonl", [{"messages": [{"role": "user", "content": prompt},
                                                {"role": "assistant", "content": answer}]}
                                  for prompt, answer in all_tasks])
        cls.write("tasks.jsonl", [{"prompt": prompt, "answer": "7"} for prompt, _ in all_tasks])
        cls.write("pairs.jsonl", cls.pairs)
        called(ARGS.programs / "ch36_finetune", *QUIET, "--model", "tiny", "--layers", L, "--data", cls.here / "chats.jsonl",
               "--batch", 8, "--steps", 40, "--lr", 0.005, "--save", cls.here / "base")

    @classmethod
    def write(cls, name, lines):
        (cls.here / name).write_text("".join(json.dumps(line) + "\n" for line in lines))

    def ours(self, kind, *words):
        trace = self.here / "trace.jsonl"
        called(ARGS.programs / "ch37_rl", *QUIET, "--base", self.here / "base", "--batch", BATCH, "--steps", STEPS,
               "--optimizer", "sgd", "--lr", RATES[kind], "--loss", kind, "--beta", BETA, "--trace", trace, *words)
        lines = [json.loads(line) for line in trace.read_text().splitlines()]
        return tuple([float.fromhex(line[name]) for line in lines] for name in ("loss", "grad_norm"))

    def model(self):
        return GPT2LMHeadModel.from_pretrained(self.here / "base", resid_pdrop=0, embd_pdrop=0, attn_pdrop=0)

    def common(self):
        return {"output_dir": str(self.here / "trl"), "use_cpu": True, "bf16": False, "report_to": [],
                "gradient_checkpointing": False}

    def dpo(self, rate, prompt_too=False, **flags):
        class Trainer(DPOTrainer):
            def _prepare_dataset(self, dataset, *_):
                return dataset  # is tokens already

        examples = [{"prompt_ids": spelled(pair["prompt"]), "chosen_ids": answer_of(pair["chosen"]),
                     "rejected_ids": answer_of(pair["rejected"])} for pair in self.pairs]
        trainer = Trainer(self.model(), self.model(), DPOConfig(**{**self.common(), "beta": BETA, **flags}),
                          train_dataset=Dataset.from_list(examples), processing_class=tokenizer())

        def loss_of(step):
            batch = trainer.data_collator(examples[BATCH * step:BATCH * (step + 1)])
            if prompt_too:
                batch["completion_mask"] = batch["attention_mask"]
            return trainer.compute_loss(trainer.model, batch)

        return descend(trainer.model, loss_of, rate)

    def grpo(self, drawn, **flags):
        """drawn: the answers of all rollouts. Four steps with each."""
        prompts = [prompt for prompt, _ in tasks()]
        given = []

        def rollout(*_):
            return {"prompt_ids": [spelled(prompts[one["line"]]) for one in given],
                    "completion_ids": [one["tokens"] for one in given], "logprobs": None}

        config = GRPOConfig(**{**self.common(), "per_device_train_batch_size": BATCH * GROUP, "num_generations": GROUP,
                               "num_iterations": 4, "epsilon": 0.2, "epsilon_high": 0.28, "loss_type": "dapo",
                               "max_completion_length": LONGEST, "gradient_accumulation_steps": 1, **flags})
        trainer = GRPOTrainer(self.model(), [lambda **_: [float(one["reward"]) for one in given]], config,
                              train_dataset=Dataset.from_list([{"prompt": prompt} for prompt in prompts]),
                              processing_class=tokenizer(), rollout_func=rollout)
        trainer.current_gradient_accumulation_steps = 1
        trainer.model.train()
        inputs = {}

        def loss_of(step):
            if step % 4 == 0:
                given[:] = [one for one in drawn if one["rollout"] == step // 4]
                inputs.update(trainer._generate_and_score_completions([{"prompt": prompts[one["line"]]} for one in given]))
            return trainer.compute_loss(trainer.model, inputs)

        return descend(trainer.model, loss_of, RATES["grpo"])

    def far(self, ours, theirs, kind):
        """The largest distance of a loss and of a norm, in bounds. Nothing is near a NaN, which max() would pass over."""
        if not all(map(math.isfinite, [*ours[0], *ours[1], *theirs[0], *theirs[1]])):
            return math.inf, math.inf
        loss = max(abs(a - b) for a, b in zip(ours[0], theirs[0], strict=True)) / (TOLERANCE * math.log(V) * WEIGHTS[kind])
        norm = max(abs(a - b) for a, b in zip(ours[1], theirs[1], strict=True)) / (TOLERANCE * max(theirs[1]))
        return loss, norm

    def compare(self, name, kind, ours, theirs, mistakes):
        found = self.far(ours, theirs, kind)
        print(f"{name}: losses {ours[0][0]:.4f} to {ours[0][-1]:.4f}, norms {ours[1][0]:.4f} to {ours[1][-1]:.4f}; "
              f"off by {found[0]:.1e} and {found[1]:.1e} of the bound")
        self.assertLess(max(found), 1)
        for mistake, other in mistakes.items():
            found = self.far(ours, other, kind)
            print(f"{name}, {mistake}: {found[0]:.1e} and {found[1]:.1e}")
            self.assertGreater(max(found), 1)

    def test_dpo(self):
        for loss, name in THEIRS.items():
            ours = self.ours(loss, "--data", self.here / "pairs.jsonl")
            other = "ipo" if name == "sigmoid_norm" else "sigmoid_norm"
            # With sums a prompt that is learned, too, changes nothing: it is in both answers.
            mistake = {"beta": 0.2} if loss == "dpo" else {"prompt_too": True}
            self.compare(loss, loss, ours, self.dpo(RATES[loss], loss_type=[name]), {
                f"loss_type {other}": self.dpo(RATES[loss], loss_type=[other]),
                str(mistake): self.dpo(RATES[loss], loss_type=[name], **mistake)})

    def test_grpo(self):
        for name, flags in GRPO.items():
            file = self.here / f"{name}.jsonl"
            ours = self.ours("grpo", "--data", self.here / "tasks.jsonl", "--group", GROUP, "--max-tokens", LONGEST, "--updates",
                             4, "--rollouts", file, *OURS[name])
            drawn = [json.loads(line) for line in file.read_text().splitlines()]
            mistakes = {
                "std": {"mean of means": {"loss_type": "grpo"}, "without std": {"scale_rewards": "none"},
                        "one clip": {"epsilon_high": 0.2}},
                "kl": {"k3 times the ratio, trl's default": {"use_bias_correction_kl": True}}}.get(name, {})
            self.compare(f"grpo, {name}", "grpo", ours, self.grpo(drawn, **flags),
                         {what: self.grpo(drawn, **{**flags, **more}) for what, more in mistakes.items()})


if __name__ == "__main__":
    run(Rl)
