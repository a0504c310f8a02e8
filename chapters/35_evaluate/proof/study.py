#!/usr/bin/env python3
"""Three studies of scores, which docs/results/35_evaluate.md shows. TASKS is a folder that proof/tasks.py has filled.

    chapters/35_evaluate/proof/study.py curve TASKS [--steps 100,200,400] [--picture X.svg]
        Scores of a model while it learns: trains it further on train.txt and scores it, in turns. Writes
        TASKS/curve.tsv, and goes on behind the steps that stand there.
    chapters/35_evaluate/proof/study.py moved TASKS PLAIN BEGUN
        What moves a score and is not the model: one rule is changed. PLAIN and BEGUN are models with the same
        tokenizer. PLAIN has never read its last token at the beginning of a text, BEGUN always has.
    chapters/35_evaluate/proof/study.py speed TASKS MODEL [--rounds 5]
        Beside lm-eval, in turns, one thread each. Wants lm-eval[hf].
"""

import argparse
import json
import math
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from array import array
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
MODEL = "--model llama-tiny --seq-len 128 --batch 16 --lr 3e-3"
RANKED = ["verse", "copy", "sort", "arithmetic", "brackets"]
HARNESS = """
import sys
from pathlib import Path
sys.path.append(sys.argv[1])
import torch
torch.set_num_threads(1)
import lm_eval
from lm_eval.models.huggingface import HFLM
from test_evaluate import tasks
model = HFLM(pretrained=sys.argv[3], device="cpu", dtype="float32", batch_size=8)
lm_eval.simple_evaluate(model=model, tasks=tasks(Path(sys.argv[2]), ["ranked"]), bootstrap_iters=0)
"""


def call(*words):
    subprocess.run(list(map(str, words)), check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def read(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def write(path, lines):
    path.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines), encoding="utf-8")


# ---- curve --------------------------------------------------------------------------------------


def curve(args):
    table, model, report = (args.tasks / name for name in ("curve.tsv", "model", "report.json"))
    rows = [line.split("\t") for line in table.read_text().splitlines()] if table.exists() else [
        ["steps", "task", "score", "value", "error"]]
    for steps in args.steps.split(","):
        if steps in {row[0] for row in rows}:
            continue
        call(args.bin / "ch06_checkpointing", "--data", args.tasks / "train.txt", *MODEL.split(), "--steps", steps, "--save", model,
             "--quiet", *(["--load", model] if model.exists() else []))
        names = [*RANKED, "text", "sums"]
        call(args.bin / "ch35_evaluate", "--load", model, "--seq-len", 256, "--report", report, "--tasks",
             *(args.tasks / f"{name}.jsonl" for name in names))
        for name, of in zip(names, json.loads(report.read_text())["files"]):
            for score, one in of["scores"].items():
                rows.append([steps, name, score, f"{one['value']:.5g}", f"{one['error']:.2g}"])
        table.write_text("".join("\t".join(row) + "\n" for row in rows))
    if args.picture:
        draw(rows[1:], args.picture)


def draw(rows, path):
    sys.path.append(str(ROOT / "scripts"))
    from plot import GREY, pyplot, save

    figure, (left, right) = pyplot().subplots(1, 2, figsize=(8.4, 3.2), layout="constrained")
    for name, score, panel in [*((name, "acc", left) for name in RANKED), ("text", "bits_per_byte", right)]:
        steps, values, errors = zip(*((int(row[0]), float(row[3]), float(row[4])) for row in rows if row[1:3] == [name, score]))
        panel.errorbar(steps, values, errors, fmt=".-", capsize=2, label=name)
        panel.set(xscale="log", xlabel="steps", ylabel=score.replace("_", " "), xticks=steps, xticklabels=steps)
        panel.minorticks_off()
    left.axhline(0.25, color=GREY, linestyle=":", label="chance")
    left.legend(fontsize=8)
    right.set_ylim(bottom=0)
    save(figure, path)


# ---- moved --------------------------------------------------------------------------------------


def ask(args, model, questions, *flags):
    """The lines of --out, and the scores."""
    tasks, out, report = (args.here / name for name in ("tasks.jsonl", "out.jsonl", "report.json"))
    write(tasks, questions)
    call(args.bin / "ch35_evaluate", "--load", model, "--tasks", tasks, "--out", out, "--report", report, *flags)
    return read(out), json.loads(report.read_text())["files"][0]["scores"]


def tokens_of(args, texts):
    """Of each text its tokens, as words; and the token that stands behind each in the file, which ends a text."""
    asked, bin_ = args.here / "texts.jsonl", args.here / "texts.bin"
    write(asked, [{"text": text} for text in texts])
    call(args.bin / "ch24_tokenizer", "encode", "--tokenizer", args.models[0], "--data", asked, "--tokens", "uint16", "--out", bin_)
    ids = array("H", bin_.read_bytes())
    return [one.strip() for one in " ".join(map(str, ids)).split(f" {ids[-1]}")[:-1]], ids[-1]


def last_word(line):
    """The last word of a sentence, as LAMBADA asks for it."""
    context, _, word = line["context"].rstrip(".,:;?!").rpartition(" ")
    return {"context": context, "target": word}


def moved(args):
    plain, begun = args.models
    # Of sentences that fit the window.
    verse = [line for line in read(args.tasks / "verse.jsonl") if max(map(len, line["choices"])) <= 100]
    word = [last_word(line) for line in verse]
    right = [{**line, "target": " " + line["target"]} for line in word]
    (blank, *ids), end = tokens_of(args, [" ", *(line[key] for key in ("context", "target") for line in word)])
    apart = [{"context": a, "target": f" {blank} {b}"} for a, b in zip(ids, ids[len(word):])]
    print(f"{len(verse)} questions\n\n| changed | rule of lm-eval | other rule | other verdicts |\n|---|--:|--:|--:|")
    rows = [("`begun`: nothing in front", (begun, right, "--add-bos"), (begun, right)),
            ("`plain`: the token in front", (plain, right), (plain, right, "--add-bos")),
            ("`plain`: no blank in front of the word", (plain, right), (plain, word)),
            ("`plain`: context, blank and word encoded apart", (plain, right),
             (plain, apart, "--tokens", "ids", "--prefix-token", end))]
    for what, *both in rows:
        one, other = (ask(args, *how) for how in both)
        differ = sum(a["greedy"] != b["greedy"] for a, b in zip(one[0], other[0]))
        nats = (f"{scores['nats']['value']:.3f} nats, {scores['greedy']['value']:.3f}" for _, scores in (one, other))
        print(f"| last word, {what} | " + " | ".join(nats) + f" | {differ} |")
    choices(args, plain, verse)
    texts(args, plain, begun)


def choices(args, model, verse):
    lines, scores = ask(args, model, verse)
    picks = {}
    for what, length in (("characters", lambda _, texts: map(len, texts)), ("tokens", lambda line, _: line["tokens"]),
                         ("the sum", lambda _, texts: [1] * len(texts))):
        each = [[ll / n for ll, n in zip(line["loglikelihoods"], length(line, one["choices"]))] for line, one in zip(lines, verse)]
        picks[what] = [ratios.index(max(ratios)) for ratios in each]
    acc = {what: statistics.fmean(i == one["gold"] for i, one in zip(some, verse)) for what, some in picks.items()}
    assert math.isclose(acc["characters"], scores["acc_norm"]["value"]) and math.isclose(acc["the sum"], scores["acc"]["value"])
    for what in ("tokens", "the sum"):
        differ = sum(a != b for a, b in zip(picks["characters"], picks[what]))
        print(f"| next sentence, `plain`: by {what}, not by characters | {acc['characters']:.3f} | {acc[what]:.3f} | {differ} |")


def texts(args, plain, begun):
    text = read(args.tasks / "text.jsonl")
    several = [{"text": " ".join(one["text"] for one in text[i:i + 20])} for i in range(0, len(text), 20)]
    bits = lambda *how: ask(args, *how)[1]["bits_per_byte"]["value"]  # noqa: E731
    each = [-line["loglikelihoods"][0] / math.log(2) / len(one["text"].encode()) for line, one in zip(ask(args, plain, text)[0], text)]
    for what, one, other in (("`plain`: the mean of ratios", bits(plain, text), statistics.fmean(each)),
                             ("`plain`, 20 sentences: windows of 16", bits(plain, several), bits(plain, several, "--seq-len", 16)),
                             ("`begun`: the token in front, scored, too", bits(begun, text), bits(begun, text, "--add-bos"))):
        print(f"| bits per byte, {what} | {one:.3f} | {other:.3f} | |")


# ---- speed --------------------------------------------------------------------------------------


def seconds(*words):
    """Of a whole process: by the clock, and of processors."""
    used = lambda: sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2])  # noqa: E731
    begin, before = time.perf_counter(), used()
    call(*words)
    return time.perf_counter() - begin, used() - before


def speed(args):
    """Each program with all questions and with one: what all take more is the time of scoring."""
    verse, model, found = read(args.tasks / "verse.jsonl"), args.models[0], {}
    sizes = {"one": verse[:1], "all": verse}
    for name, lines in sizes.items():
        (args.here / name).mkdir()
        write(args.here / name / "ranked.jsonl", lines)
    for turn in range(args.rounds):
        took = {}
        for name in sizes:
            here = args.here / name
            took["ours", name] = seconds(args.bin / "ch35_evaluate", "--load", model, "--tasks", here / "ranked.jsonl", "--threads", 1)
            took["theirs", name] = seconds(sys.executable, "-c", HARNESS, ROOT / "tests/clients", here, model)
        for i, clock in enumerate(("clock", "processor")):
            whole, start = ({who: took[who, name][i] for who in ("ours", "theirs")} for name in ("all", "one"))
            found.setdefault(f"whole process, {clock}", []).append(whole["theirs"] / whole["ours"])
            found.setdefault(f"scoring, {clock}", []).append((whole["theirs"] - start["theirs"]) / (whole["ours"] - start["ours"]))
        print(f"round {turn + 1}:", {" ".join(key): [round(x, 2) for x in value] for key, value in took.items()}, flush=True)
    for what, ratios in found.items():
        print(f"| {what} | {statistics.median(ratios):.2f} | {min(ratios):.2f} to {max(ratios):.2f} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("study", choices=["curve", "moved", "speed"])
    parser.add_argument("tasks", type=Path)
    parser.add_argument("models", type=Path, nargs="*")
    parser.add_argument("--build", type=Path, default=Path("build/cpu"))
    parser.add_argument("--steps", default="50,100,200,400,800,1600")
    parser.add_argument("--picture", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    wanted = {"curve": 0, "moved": 2, "speed": 1}[args.study]
    if len(args.models) != wanted:
        parser.error(f"{args.study}: {len(args.models)} models; legal are {wanted}")
    args.bin = args.build / "bin"
    with tempfile.TemporaryDirectory() as here:
        args.here = Path(here)
        globals()[args.study](args)


if __name__ == "__main__":
    main()
