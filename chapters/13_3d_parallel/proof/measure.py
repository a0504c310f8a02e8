"""The measured tables of chapter 13: every category and axis of a mesh of 8 ranks, other meshes of
8; the plan of 1,024 ranks; and the numbers in the picture of the mesh."""

import re
from pathlib import Path

from measure import both, long_table, output_of, run, short_text, table

HERE = Path(__file__).resolve().parents[1]
PARENT, CHAPTER = "06_checkpointing", "13_3d_parallel"
MODEL = "--model small --layers 8 --heads 8 --batch 16 --steps 2"
CUBE = f"{MODEL} --micro-batch 2 --threads 1 --tp 2 --dp 2 --pp 2"
AXES = ("tp", "dp", "pp")
CATEGORIES = ("Param", "Grad", "Optim", "Activation", "Workspace", "Comm")
OTHERS = ("--sequence-parallel", "--precision bf16")
SCHEDULES = ("--pipeline gpipe", "--pipeline interleaved", "--pipeline zb-h1")
# tp, dp, pp
MESHES = ((1, 8, 1), (1, 1, 8), (8, 1, 1), (2, 2, 2))

GPT3 = ("--plan-only --world 1024 --model gpt3-175b --batch 1024 --micro-batch 1 --precision bf16 "
        "--sequence-parallel --recompute selective")
GPT3_MESHES = ((8, 8, 16), (8, 16, 8), (8, 4, 32), (4, 16, 16), (2, 32, 16))
GIB = {"MiB": 1 / 1024, "GiB": 1}


def total(of_rank, which="measured"):
    return sum(v[which] for k, v in of_rank.items() if k != "rank")


def cube_memory(report):
    """A row for each stage. Its ranks must be alike."""
    rows, ranks = [], report["layout"]["ranks"] // report["layout"]["pp"]
    for stage, flight in enumerate(report["extra"]["pipeline"]["in_flight"]):
        of_stage = [{k: v for k, v in r.items() if k != "rank"}
                    for r in report["memory"][stage * ranks:(stage + 1) * ranks]]
        assert all(r == of_stage[0] for r in of_stage), "ranks of a stage differ"
        cells = [both(of_stage[0][c]["predicted"], of_stage[0][c]["measured"]) for c in CATEGORIES]
        sums = [total(of_stage[0], which) for which in ("predicted", "measured")]
        rows.append([f"{stage}: ranks {stage * ranks} to {(stage + 1) * ranks - 1}",
                     both(**flight), *cells, both(*sums)])
    return rows


def cube_traffic(cube, others):
    """Of the cube's report, and of those with other flags."""
    rows = []
    for flags, report in {"": cube, **others}.items():
        ranks = report["layout"]["ranks"] // 2
        for stage in range(2):
            of_rank = report["extra"]["traffic"][stage * ranks]
            rows.append([f"`{flags}`" if flags else "as above", stage,
                         *(both(**of_rank[axis]) for axis in AXES)])
    return long_table("Traffic", ["flags", "stage", *AXES], rows, shown=[0, 1, 2])


def bubbles(reports):
    rows = []
    for r in (report["extra"]["pipeline"] for report in reports):
        flight = " / ".join(both(**stage) for stage in r["in_flight"])
        rows.append([f"`{r['name']}`", flight, f"{100 * r['bubble']['theory']:.1f}%",
                     f"{100 * r['bubble']['measured']:.1f}%"])
    return long_table("Bubble", ["`--pipeline`", "in flight, stage 0 / 1", "bubble, theory", "measured"], rows,
                      shown=[0, 3])


def meshes(text):
    """Other meshes of 8 ranks: the largest rank, what it sends, and the same hash."""
    rows, alone = [], run(PARENT, f"{MODEL} --threads 1", text)
    hashes = {alone.hash[-1]}
    for tp, dp, pp in MESHES:
        # 4 micro-batches, or as many as a share has sequences.
        flags = f"{MODEL} --threads 1 --micro-batch {max(1, 16 // dp // 4)}"
        r = run(CHAPTER, f"{flags} --tp {tp} --dp {dp} --pp {pp}", text)
        hashes.add(r.hash[-1])
        sent = {axis: max(rank[axis]["measured"] for rank in r.report["extra"]["traffic"])
                for axis in AXES}
        m = r.report["extra"]["pipeline"]["micro_batches"]
        states = max(rank["Optim"]["measured"] for rank in r.report["memory"])
        rows.append([f"{tp} x {dp} x {pp}", m, f"{max(map(total, r.report['memory'])):,}",
                     f"{states:,}", *(f"{sent[axis]:,}" for axis in AXES),
                     f"{100 * (pp - 1) / (m + pp - 1):.0f}%", f"`{r.hash[-1]}`"])
    assert len(hashes) == 1, "another run than that of 06"
    rows.insert(0, ["06, one rank", 1, f"{total(alone.report['memory'][0]):,}",
                    f"{alone.memory('Optim'):,}", 0, 0, 0, "0%", f"`{alone.hash[-1]}`"])
    return table(["tp x dp x pp", "micro-batches", "largest rank", "its states", "sends tp", "dp",
                  "pp", "bubble, theory", "hash"], rows)


def shortened(plan_text):
    """Without most shares, and without the memory of most stages: from one to the next only Activation falls."""
    for some in (r"(  share 1 .*\n)(?:  share \d .*\n)+(  share 7 )", r"(  stage 2 .*\n)(?:  stage \d+ .*B\n)+(  stage 14 .*B\n)"):
        plan_text = re.sub(some, r"\1  ...\n\2", plan_text)
    return plan_text


def plan(flags):
    return output_of(f"ch{CHAPTER}", *flags.split()).rstrip()


def numbers(plan_text, title):
    """GiB of each row in the table of that title."""
    lines = plan_text[plan_text.index(f"\n  {title} "):].splitlines()[2:]
    rows = []
    for line in lines:
        if not line.startswith("  stage"):
            break
        rows.append([float(x) * GIB[unit] for x, unit in re.findall(r"([\d.]+) (MiB|GiB)", line)])
    return rows


def plans():
    rows = []
    for tp, dp, pp in GPT3_MESHES:
        text = plan(f"{GPT3} --tp {tp} --pp {pp}")
        running = plan(f"{GPT3} --tp {tp} --pp {pp} --accumulate running")
        sent = [max(column) for column in zip(*numbers(text, "sent in a step"))]
        idle = re.search(r"wait ([\d.]+%)", text)[1]
        rows.append([f"{tp} x {dp} x {pp}",
                     *(f"{max(r[-1] for r in numbers(t, 'memory')):.1f}" for t in (text, running)),
                     *(f"{gib:.2f}" for gib in sent), idle])
    head = ["tp x dp x pp", "GiB of the largest rank", "the same with `--accumulate running`", "GiB it sends: tp",
            "dp", "pp", "bubble"]
    return long_table("Other meshes of 1,024 ranks", head, rows, shown=[0, 2, 4])


def picture(report):
    """Writes what a rank of stage 0 sends its neighbors in a step into the picture of the mesh."""
    path = HERE / "mesh.svg"
    svg = path.read_text()
    for axis, color in {"tp": "#d9534f", "dp": "#3d85c6", "pp": "#2e9e5b"}.items():
        mb = report["extra"]["traffic"][0][axis]["measured"] / 1e6
        svg = re.sub(rf'({color}"[^>]*>)[\d.]+ MB', rf"\g<1>{mb:.1f} MB", svg)
    path.write_text(svg)


def measure():
    text = short_text(batch=16, seq_len=256)
    cube = run(CHAPTER, CUBE, text).report
    picture(cube)
    others, schedules = ({flags: run(CHAPTER, f"{CUBE} {flags}", text).report for flags in words}
                         for words in (OTHERS, SCHEDULES))
    alone = run(PARENT, f"{MODEL} --threads 1", text)
    rows = cube_memory(cube)
    rows.insert(0, ["06, one rank", "", *(f"{alone.memory(c):,}" for c in CATEGORIES[:-1]), 0,
                    f"{total(alone.report['memory'][0]):,}"])
    return "\n\n".join([
        f"**Memory.** `{CUBE}`: each pipeline has 4 micro-batches. Peak bytes of a rank, predicted and "
        "measured alike; all ranks of a stage are alike, too:",
        table(["stage", "in flight", *CATEGORIES, "total"], rows),
        "**Traffic.** The same run: what a rank of each stage sends a step of activations, gradients and "
        "weights, in bytes by axis, predicted and measured alike. [Other flags](../../docs/results/chapter_13.md#traffic):",
        cube_traffic(cube, others),
        "**Bubble.** The same run, measured as in chapter 12. "
        "[All schedules](../../docs/results/chapter_13.md#bubble):",
        bubbles([cube, *schedules.values()]),
        f"**Other meshes of 8 ranks.** `{MODEL} --threads 1`, 4 micro-batches, or as many as a share "
        "has sequences; the most bytes of any rank:",
        meshes(text),
        f"**1,024 ranks, planned.** `{GPT3} --tp 8 --pp 16`:",
        f"```\n{shortened(plan(f'{GPT3} --tp 8 --pp 16'))}\n```",
        "[Other meshes](../../docs/results/chapter_13.md#other-meshes-of-1024-ranks) of 1,024 ranks. Each number "
        "is that of the rank that has most:",
        plans(),
    ])
