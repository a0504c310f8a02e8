#!/usr/bin/env python3
"""Two studies of scores, which docs/results/35_evaluate.md shows. TASKS is a folder that proof/tasks.py has filled.

    chapters/35_evaluate/proof/study.py curve TASKS [--steps 100,200,400] [--picture X.svg]
        Scores of a model while it learns: trains it further on train.txt and scores it, in turns. Writes
        TASKS/curve.tsv, and goes on behind the steps that stand there.
    chapters/35_evaluate/proof/study.py moved TASKS PLAIN BEGUN
        What moves a score and is not the model: one rule is changed. PLAIN and BEGUN are models with the same
        tokenizer. PLAIN has never read its last token at the beginning of a text, BEGUN always has.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from array import array
from pathlib import Path

from tasks import KINDS, write

ROOT = Path(__file__).resolve().parents[3]
MODEL = "--model llama-tiny --seq-len 128 --batch 16 --lr 3e-3"


def call(*words):
    subprocess.run(list(map(str, words)), check=True, stdout=subprocess.DEVNULL)


def read(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


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
        names = [*KINDS, "text", "sums"]
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
    for name, score, panel in [*((name, "acc", left) for name in KINDS), ("text", "bits_per_byte", right)]:
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
    call(args.bin / "ch35_evaluate", "--load", model, "--tasks", tasks, "--out", out, "--report", report, "--threads", 1, *flags)
    scores = json.loads(report.read_text())["files"][0]["scores"]
    return read(out), {name: score["value"] for name, score in scores.items()}


def tokens_of(args, texts):
    """Of each text its tokens, as words; and the token that stands behind each in the file, which ends a text."""
    asked, file = args.here / "texts.jsonl", args.here / "texts.bin"
    write(asked, [{"text": text} for text in texts])
    call(args.bin / "ch24_tokenizer", "encode", "--tokenizer", args.models[0], "--data", asked, "--tokens", "uint16", "--out", file)
    ids = array("H", file.read_bytes())
    return [one.strip() for one in " ".join(map(str, ids)).split(f" {ids[-1]}")[:-1]], ids[-1]


def last_word(line):
    """The last word of a sentence, as LAMBADA asks for it."""
    context, _, word = line["context"].rstrip(".,:;?!").rpartition(" ")
    return {"context": context, "target": word}


def row(*cells):
    print("|", " | ".join(f"{cell:.3f}" if isinstance(cell, float) else str(cell) for cell in cells), "|", flush=True)


def moved(args):
    row("changed", "score", "rule of lm-eval", "other rule", "other verdicts")
    row("---", "---", "--:", "--:", "--:")
    verse = read(args.tasks / "verse.jsonl")
    last_words(args, [last_word(line) for line in verse])
    choices(args, verse[:300])
    texts(args, read(args.tasks / "text.jsonl"))


def last_words(args, word):
    plain, begun = args.models
    right = [{**line, "target": " " + line["target"]} for line in word]
    (blank, *ids), end = tokens_of(args, [" ", *(line[key] for key in ("context", "target") for line in word)])
    apart = [{"context": a, "target": f" {blank} {b}"} for a, b in zip(ids, ids[len(word):])]
    one = {begun: ask(args, begun, right, "--add-bos"), plain: ask(args, plain, right)}
    for what, model, *how in (("`begun`: nothing in front", begun, right),
                              ("`plain`: the token in front", plain, right, "--add-bos"),
                              ("`plain`: no blank in front of the word", plain, word),
                              ("`plain`: context, blank and word encoded apart", plain, apart, "--tokens", "ids", "--prefix-token", end)):
        other = ask(args, model, *how)
        row(f"last word, {what}", "nats a word", one[model][1]["nats"], other[1]["nats"], "")
        row("", "greedy", one[model][1]["greedy"], other[1]["greedy"],
            sum(a["greedy"] != b["greedy"] for a, b in zip(one[model][0], other[0])))


def choices(args, verse):
    asked = [choice for line in verse for choice in line["choices"]]
    long = {choice for choice, ids in zip(asked, tokens_of(args, asked)[0]) if len(ids.split()) > 60}  # the window is 64
    verse = [line for line in verse if long.isdisjoint(line["choices"])]
    lines, scores = ask(args, args.models[0], verse)
    for line, question in zip(lines, verse):
        means = [sum_ / tokens for sum_, tokens in zip(line["loglikelihoods"], line["tokens"])]
        line["scores"]["by tokens"] = float(means.index(max(means)) == question["gold"])
    for score in ("acc", "by tokens"):
        value = statistics.fmean(line["scores"][score] for line in lines)
        row(f"next sentence, `plain`, {len(verse)} questions", f"acc_norm, {score}", scores["acc_norm"], value,
            sum(line["scores"][score] != line["scores"]["acc_norm"] for line in lines))


def texts(args, text):
    plain, begun = args.models
    lines, scores = ask(args, plain, text)
    each = [line["scores"]["bits_per_byte"] / len(one["text"].encode()) for line, one in zip(lines, text)]
    row("sentences, `plain`: the mean of ratios", "bits per byte", scores["bits_per_byte"], statistics.fmean(each), "")
    once, twice = (ask(args, begun, text, *flags)[1]["bits_per_byte"] for flags in ([], ["--add-bos"]))
    row("sentences, `begun`: the token in front, scored, too", "bits per byte", once, twice, "")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("study", choices=["curve", "moved"])
    parser.add_argument("tasks", type=Path)
    parser.add_argument("models", type=Path, nargs="*")
    parser.add_argument("--build", type=Path, default=Path("build/cpu"))
    parser.add_argument("--steps", default="50,100,200,400,800,1600")
    parser.add_argument("--picture", type=Path)
    args = parser.parse_args()
    wanted = {"curve": 0, "moved": 2}[args.study]
    if len(args.models) != wanted:
        parser.error(f"{args.study}: {len(args.models)} models; legal are {wanted}")
    args.bin = args.build / "bin"
    with tempfile.TemporaryDirectory() as here:
        args.here = Path(here)
        globals()[args.study](args)


if __name__ == "__main__":
    main()
