#!/usr/bin/env python3
"""Chapter 31 beside generate() of Hugging Face's transformers, on models that transformers have made.

    test_generate.py --build build/cpu              skipped (status 77) unless installed
    test_generate.py --build build/cpu --install    installs them in build/clients first

Greedy texts are the same as long as the two largest logits, in FP64, are further apart than FP32 can
err. Of many draws of one token, all are tokens that the processors of transformers leave, and their
numbers are those of the processed probabilities. The window is 256, so that keys have chunks."""

import json
import math
import subprocess
import tempfile
import unittest
from pathlib import Path

from environment import TRANSFORMERS, enter, run

ARGS = enter("", TRANSFORMERS)
import torch  # noqa: E402
import transformers  # noqa: E402
from transformers import (GenerationConfig, MinPLogitsWarper, RepetitionPenaltyLogitsProcessor,  # noqa: E402
                          TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper)

WINDOW, VOCAB = 256, 256
MARGIN = 1e-4  # of two logits: a hundred times what FP32 was seen to err
SIZES = {"vocab_size": VOCAB, "bos_token_id": None, "eos_token_id": None}
LLAMA = {"num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2,
         "intermediate_size": 96, "max_position_embeddings": WINDOW, "rms_norm_eps": 1e-5, "tie_word_embeddings": False,
         "initializer_range": 0.2, **SIZES}
CONFIGS = {
    "gpt2": {"n_layer": 2, "n_embd": 64, "n_head": 4, "n_positions": WINDOW, "initializer_range": 0.2, **SIZES},
    "llama": LLAMA,
    "mixtral": {**LLAMA, "num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": None},
}
FILTERS = {  # ours, and theirs
    "temperature": ({"temperature": 0.7}, {"temperature": 0.7}),
    "top-k": ({"top-k": 12}, {"top_k": 12}),
    "top-p": ({"top-p": 0.6}, {"top_p": 0.6}),
    "min-p": ({"min-p": 0.1}, {"min_p": 0.1}),
    "penalty": ({"repetition-penalty": 1.5}, {"repetition_penalty": 1.5}),
    "all": ({"temperature": 1.4, "top-k": 40, "top-p": 0.8, "min-p": 0.05, "repetition-penalty": 1.3},
            {"temperature": 1.4, "top_k": 40, "top_p": 0.8, "min_p": 0.05, "repetition_penalty": 1.3}),
}


class Generate(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        transformers.logging.set_verbosity_error()
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.here, cls.models = Path(folder.name), {}
        kinds = {"gpt2": (transformers.GPT2Config, transformers.GPT2LMHeadModel),
                 "llama": (transformers.LlamaConfig, transformers.LlamaForCausalLM),
                 "mixtral": (transformers.MixtralConfig, transformers.MixtralForCausalLM)}
        for name, (config, model) in kinds.items():
            torch.manual_seed(1)
            made = model(config(**CONFIGS[name])).eval()
            made.save_pretrained(cls.here / name)
            made.set_experts_implementation("eager")  # grouped products know no FP64
            cls.models[name] = made.double()
        generator = torch.Generator().manual_seed(2)
        cls.prompts = [torch.randint(VOCAB, (n,), generator=generator).tolist() for n in (1, 5, 40, 180)]

    def ours(self, model, prompts, **options):
        given, out = self.here / "prompts.jsonl", self.here / "out.jsonl"
        given.write_text("".join(json.dumps({"prompt": " ".join(map(str, prompt))}) + "\n" for prompt in prompts))
        command = [ARGS.programs / "ch31_generate", "--load", self.here / model, "--prompts", given, "--out", out,
                   "--tokens", "ids", "--threads", "1"]
        for flag, value in options.items():
            command += [f"--{flag}", str(value)]
        done = subprocess.run(command, capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        return [json.loads(line) for line in out.read_text().splitlines()]

    def logits(self, model, tokens):
        """Of each position, in FP64, without a cache."""
        with torch.no_grad():
            return self.models[model](torch.tensor([tokens])).logits[0].double()

    def given(self, prompt):
        """For generate(), which would take a token 0 for padding."""
        ids = torch.tensor([prompt])
        return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}

    def test_greedy_texts(self):
        for model in CONFIGS:
            texts = self.ours(model, self.prompts, **{"temperature": 0, "max-tokens": 60})
            compared = 0
            for prompt, text in zip(self.prompts, texts):
                with self.subTest(model=model, prompt=len(prompt)):
                    with torch.no_grad():
                        theirs = self.models[model].generate(
                            **self.given(prompt), do_sample=False, max_new_tokens=60, pad_token_id=0)[0].tolist()[len(prompt):]
                    logits = self.logits(model, prompt + theirs)[len(prompt) - 1:-1]
                    two = logits.topk(2).values
                    sure = ((two[:, 0] - two[:, 1]) > MARGIN).tolist() + [False]
                    count = sure.index(False)
                    self.assertEqual(text["tokens"][:count], theirs[:count])
                    compared += count
                    scores = logits.log_softmax(-1)
                    for token, row, ours in zip(theirs[:count], scores, text["logprobs"]):
                        self.assertAlmostEqual(ours, row[token].item(), delta=1e-4)
            self.assertGreater(compared, 200, model)

    def test_greedy_texts_with_a_penalty(self):
        """Of tokens that prompt or answer have: a penalty of the answer alone gives another text."""
        prompt, penalty = self.prompts[2], {"repetition_penalty": 1.3}
        ours = self.ours("llama", [prompt], **{"temperature": 0, "max-tokens": 60, "repetition-penalty": 1.3})[0]["tokens"]
        with torch.no_grad():
            generate = lambda **more: self.models["llama"].generate(  # noqa: E731
                **self.given(prompt), do_sample=False, max_new_tokens=60, pad_token_id=0, **more)[0].tolist()[len(prompt):]
            self.assertEqual(ours, generate(**penalty))
            answer_alone = RepetitionPenaltyLogitsProcessor(1.3, prompt_ignore_length=len(prompt))
            self.assertNotEqual(ours, generate(logits_processor=transformers.LogitsProcessorList([answer_alone])))

    def misfit(self, seen, p):
        """The first token whose count is further from its chance than draws are, or None."""
        draws = sum(seen)
        far = lambda count, chance: abs(count - draws * chance) > 5 * math.sqrt(draws * chance * (1 - chance)) + (1 if chance else 0)  # noqa: E731
        return next((token for token, (count, chance) in enumerate(zip(seen, p)) if far(count, chance)), None)

    def test_filters(self):
        """And orders that are not theirs are seen: filters before the penalty, or before the temperature."""
        draws, prompt = 4000, self.prompts[2]
        for name, (mine, his) in FILTERS.items():
            with self.subTest(name):
                answers = self.ours("llama", [prompt], **mine, **{"answers": draws, "max-tokens": 1, "batch": 256})
                seen = [0] * VOCAB
                for answer in answers:
                    seen[answer["tokens"][0]] += 1
                model = self.models["llama"]
                config = GenerationConfig(do_sample=True, max_new_tokens=1, pad_token_id=0, output_scores=True,
                                          return_dict_in_generate=True, **{"top_k": 0, **his})
                with torch.no_grad():
                    scores = model.generate(**self.given(prompt), generation_config=config).scores[0][0]
                p = scores.double().softmax(-1).tolist()
                self.assertIsNone(self.misfit(seen, p))
                if name not in ("temperature", "penalty"):
                    self.assertLess(sum(chance > 0 for chance in p), VOCAB, "the filter leaves something out")
        heat, penalty = TemperatureLogitsWarper(1.4), RepetitionPenaltyLogitsProcessor(1.3)
        filters = [TopKLogitsWarper(40), TopPLogitsWarper(0.8), MinPLogitsWarper(0.05)]
        for order in [[penalty, heat, *filters], [heat, *filters, penalty], [penalty, *filters, heat]]:
            ids, row = torch.tensor([prompt]), self.logits("llama", prompt)[-1:]
            for processor in order:
                row = processor(ids, row)
            wrong = order[1] is not heat
            self.assertEqual(self.misfit(seen, row[0].softmax(-1).tolist()) is not None, wrong)


if __name__ == "__main__":
    run(Generate)
