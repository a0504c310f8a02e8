"""The rows of the comparison: which programs run, with which flags, and which must be equal."""

import sys
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import chapter_tree  # noqa: E402

TREE = chapter_tree.chapters()
REFERENCE = "06"


@dataclass(frozen=True)
class Row:
    """One program, and the flags that make it this technique."""

    key: str  # names its files
    chapter: str
    title: str
    flags: str = ""
    differs: str = ""  # why its numbers are not chapter 06's; empty: they must be

    @property
    def group(self):
        """What the ranks of a chapter share."""
        for ancestor, name in [("13_3d_parallel", "3D parallel"), ("12_pipeline_parallel", "pipeline parallel"),
                               ("11_tensor_parallel", "tensor parallel"), ("07_ddp", "data parallel")]:
            if self.knows(ancestor):
                return name
        return "one rank"

    def knows(self, chapter):
        """Whether its program has the flags of that chapter."""
        return chapter in chapter_tree.ancestors(self.chapter, TREE)

    def degree(self, flag):
        """The number after a flag; 1 without it."""
        words = self.flags.split()
        return int(words[words.index(flag) + 1]) if flag in words else 1

    @property
    def ranks(self):
        if "--ranks" in self.flags.split():
            return self.degree("--ranks")
        return self.degree("--tp") * self.degree("--cp") * self.degree("--dp") * self.degree("--pp")


def rows(ranks, backend="cpu", model="small"):
    """All rows, ordered by what their ranks split."""
    # A library computes products there, and its order of summation depends on their shape.
    tp = "on CUDA, a rank's smaller products sum in another order" if "cuda" in backend else ""
    n = f"--ranks {ranks}"
    pipe = f"--pp {ranks} --pipeline"
    experts = ("--norm rms --mlp swiglu --position rope --no-bias --experts 4 --experts-per-token 2 "
               "--hidden 64")
    block = (("GPT-2's norm, MLP, positions", "--norm layer --mlp gelu --position learned")
             if model.startswith(("llama", "mistral")) else
             ("LLaMA's block", "--norm rms --mlp swiglu --position rope --kv-heads 1 --no-bias"))
    every = [
        Row("01", "01_sgd", "SGD with momentum", "--lr 0.05 --momentum 0.9",
            "another optimizer, constant rate, no clipping"),
        Row("02", "02_adamw", "AdamW", "", "constant rate, no clipping"),
        Row("03", "03_schedules", "warmup and cosine", "", "no clipping"),
        Row("04", "04_clipping", "clipping, accumulation"),
        Row("05", "05_mixed_precision", "BF16", "--precision bf16", "16-bit arithmetic"),
        Row("06", "06_checkpointing", "all activations kept"),
        Row("06-full", "06_checkpointing", "full recomputation", "--recompute full"),
        Row("07", "07_ddp", "DDP", n),
        Row("08", "08_zero1", "ZeRO-1", n),
        Row("32", "32_optimizers", "ZeRO-1, Lion", f"{n} --optimizer lion --lr 3e-4", "another optimizer"),
        Row("09", "09_zero2", "ZeRO-2", n),
        Row("10", "10_zero3", "ZeRO-3", n),
        Row("28", "28_async_checkpoint", "ZeRO-3, nothing saved", n),
        Row("30", "30_hsdp", "HSDP, 2 replicas", f"{n} --replicas 2"),
        Row("38", "38_pretrain", "HSDP, tensors watched", f"{n} --replicas 2 --watch-every 1 --alarms"),
        Row("11", "11_tensor_parallel", "tensor parallel", f"--tp {ranks}", tp),
        Row("11-sequence", "11_tensor_parallel", "with sequence parallel",
            f"--tp {ranks} --sequence-parallel", tp),
        Row("12-gpipe", "12_pipeline_parallel", "GPipe", f"{pipe} gpipe"),
        Row("12-1f1b", "12_pipeline_parallel", "1F1B", f"{pipe} 1f1b"),
        Row("12-interleaved", "12_pipeline_parallel", "interleaved 1F1B", f"{pipe} interleaved"),
        Row("12-zb-h1", "12_pipeline_parallel", "ZB-H1", f"{pipe} zb-h1"),
        Row("13", "13_3d_parallel", "TP × DP × PP, ZeRO-1", "--tp 2 --dp 2 --pp 2", tp),
        Row("33", "33_mesh", "TP × CP × HSDP × PP, ZeRO-2", "--tp 2 --cp 2 --pp 2 --micro-batch 1", tp),
        Row("14", "14_stability", "AGC, spike guard", "--agc 0.02 --spike-guard 6",
            "rows are clipped, too"),
        Row("34", "34_scaling", "muP, its own base"),
        Row("29", "29_monitor", "a look into tensors", f"{n} --watch-every 1 --alarms"),
        Row("15", "15_batch_size", "noise scale", f"{n} --noise-scale"),
        Row("16", "16_fp8", "FP8", f"{n} --precision fp8", "8-bit factors of products"),
        Row("17", "17_head_chunks", "head in chunks", "--head-chunk 1"),
        Row("26", "26_packing", "documents in rows", "--documents --end-of-text 10",
            "lines of the text, which is no stream"),
        Row("27", "27_data_order", "documents over ranks", f"{n} --documents --end-of-text 10",
            "lines of the text, which is no stream"),
        Row("36", "36_finetune", "documents, without sources", f"{n} --documents --end-of-text 10",
            "lines of the text, which is no stream"),
        Row("18", "18_offload", "ZeRO-3, inputs in a file",
            f"{n} --recompute full --offload inputs"),
        Row("19", "19_llama", *block, "another model"),
        Row("20", "20_context_parallel", "ring attention, ZeRO-2",
            f"{n} --cp 2 --context ring --micro-batch 1"),
        Row("21", "21_moe", "experts", experts, "another model"),
        Row("22", "22_expert_parallel", "experts on all ranks",
            f"{n} --ep {min(ranks, 4)} {experts}", "another model"),
    ]
    groups = list(dict.fromkeys(row.group for row in every))
    return sorted(every, key=lambda row: groups.index(row.group))


def flags_of(row, args, steps):
    """The row's command line as a list. Its own flags win over those that all rows have in common. Flags that
    its chapter does not know are left out."""
    settings = [
        ("01_sgd", "--data", args.data), ("01_sgd", "--tokenizer", args.tokenizer), ("01_sgd", "--backend", args.backend),
        ("01_sgd", "--model", args.model), ("01_sgd", "--layers", args.layers),
        ("01_sgd", "--heads", args.heads), ("01_sgd", "--channels", args.channels),
        ("01_sgd", "--seq-len", args.seq_len),
        ("01_sgd", "--batch", args.batch), ("01_sgd", "--steps", steps), ("01_sgd", "--lr", "1e-3"),
        ("03_schedules", "--schedule", "cosine"), ("03_schedules", "--warmup", args.steps // 10),
        ("04_clipping", "--clip", 1), ("04_clipping", "--micro-batch", args.micro_batch),
    ]
    own = row.flags.split()
    common = [(flag, str(value)) for since, flag, value in settings
              if row.knows(since) and value is not None and flag not in own]
    return [word for pair in common for word in pair] + own
