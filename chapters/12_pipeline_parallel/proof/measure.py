"""The measured tables of chapter 12: bubbles, micro-batches in flight, memory, traffic, speed; and
the picture of four schedules."""

import statistics
from pathlib import Path

from measure import both, long_table, run, short_text, step_ms, table, take_turns
from plot import GREY

HERE = Path(__file__).resolve().parents[1]
PARENT, CHAPTER = "06_checkpointing", "12_pipeline_parallel"
SCHEDULES = ("gpipe", "1f1b", "interleaved", "zb-h1")

# Stages of equal work: so many blocks that the head, of 256 rows, weighs a hundredth of a stage or
# less. One buffer of gradients, since merging several makes some backwards longer than others.
EVEN = ("--model small --layers 32 --channels 256 --heads 4 --seq-len 64 --micro-batch 1 "
        "--accumulate running --threads 1")
TIMES = 12  # steps: the shortest of each action counts
MEMORY = "--model small --layers 8 --batch 16 --micro-batch 2 --steps 1 --threads 1"
SPEED = "--model small --batch 16 --micro-batch 2 --steps 4"
ROUNDS = 3


def pipeline(stages, micros, schedule):
    flags = f"{EVEN} --steps {TIMES} --batch {micros} --pp {stages} --pipeline {schedule}"
    return run(CHAPTER, flags, short_text(batch=1, seq_len=64)).report["extra"]["pipeline"]


def bubbles():
    rows = []
    for stages in (2, 4):
        for micros in (4, 8, 16):
            for schedule in SCHEDULES:
                r = pipeline(stages, micros, schedule)
                theory, measured = r["bubble"]["theory"], r["bubble"]["measured"]
                ms = [r["ms"][k] for k in ("forward", "backward_input", "backward_weight")]
                times = " / ".join(f"{x:.1f}" for x in ms if x > 0)
                rows.append([stages, micros, f"`{schedule}`", times, f"{100 * theory:.1f}%",
                             f"{100 * measured:.1f}%", f"{100 * (measured / theory - 1):+.0f}%"])
                if (stages, micros) == (4, 8):
                    yield schedule, r
    shown = [i for i, row in enumerate(rows) if row[:2] == [4, 8]]
    yield None, long_table("Bubbles", ["stages", "micro-batches", "`--pipeline`", "ms of F / B, or F / I / W",
                                       "bubble, theory", "measured", "measured / theory − 1"], rows, shown)


def picture(timelines):
    """One step of each schedule: a row for each stage, a bar for each action. Written as text: a
    plotting library makes it ten times as large."""
    kinds = {"F": ("#6aa5cc", "forward"), "B": ("#1f618d", "backward"),
             "I": ("#2e86c1", "gradient of the input"), "W": ("#7d9f35", "gradient of the weights")}
    left, wide, row, gap = 100, 780, 20, 18
    end = max(actions[-1][4] for r in timelines.values() for actions in r["timeline"])
    svg, y = [], 4
    for name, r in timelines.items():
        svg.append(f'<text x="4" y="{y + 14}" font-size="13">{name}</text>')
        for stage, actions in enumerate(r["timeline"]):
            svg.append(f'<text x="{left - 14}" y="{y + 14}" font-size="11">{stage}</text>')
            for what, micro, chunk, begin, stop in actions:
                x, width = (left + wide * begin / end, wide * (stop - begin) / end)
                pale = ' opacity=".65"' if chunk % 2 else ""
                svg.append(f'<rect x="{x:.1f}" y="{y}" width="{width - 0.6:.1f}" height="{row - 3}" '
                           f'fill="{kinds[what][0]}"{pale}/>')
                svg.append(f'<text class="n" x="{x + width / 2:.1f}" y="{y + 12}">{micro}</text>')
            y += row
        y += gap
    ticks = range(0, int(end) + 1, 20 if end < 250 else 50)
    svg += [f'<text class="t" x="{left + wide * t / end:.1f}" y="{y}">{t} ms</text>' for t in ticks]
    for i, (color, label) in enumerate(kinds.values()):
        svg.append(f'<rect x="{left + 190 * i}" y="{y + 14}" width="14" height="12" fill="{color}"/>'
                   f'<text x="{left + 190 * i + 20}" y="{y + 24}" font-size="12">{label}</text>')
    style = ".n{font-size:8px;fill:#fff;text-anchor:middle}.t{font-size:10px;text-anchor:middle}"
    (HERE / "bubble.svg").write_text("\n".join(
        [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {left + wide + 24} {y + 34}" '
         f'font-family="sans-serif" fill="{GREY}"><style>{style}</style>', *svg, "</svg>\n"]))


def memory(text):
    rows = []
    for schedule in SCHEDULES:
        report = run(CHAPTER, f"{MEMORY} --pp 4 --pipeline {schedule}", text).report
        flight = report["extra"]["pipeline"]["in_flight"]
        for stage, of_rank in enumerate(report["memory"]):
            sizes = {k: v for k, v in of_rank.items() if k != "rank"}
            cells = [both(sizes[k]["predicted"], sizes[k]["measured"])
                     for k in ("Param", "Activation", "Workspace", "Comm")]
            if stage not in (0, 3):
                continue
            total = [sum(v[which] for v in sizes.values()) for which in ("predicted", "measured")]
            rows.append([f"`{schedule}`", stage, both(**flight[stage]), *cells, both(*total)])
    head = ["`--pipeline`", "stage", "in flight", "Param", "Activation", "Workspace", "Comm", "total of all categories"]
    return long_table("Memory", head, rows, shown=[2, 3, 7])


def traffic(text):
    rows = []
    for flags in ("--pp 4", "--pp 4 --pipeline interleaved", "--pp 4 --precision bf16"):
        bytes_ = run(CHAPTER, f"{MEMORY} {flags}", text).report["extra"]["traffic"]
        rows.append([f"`{flags}`", f"{bytes_['predicted']:,}", f"{bytes_['measured']:,}"])
    return table(["flags", "bytes that stage 0 sends its neighbors a step, predicted", "measured"], rows)


def speed(text):
    """Milliseconds of a step."""
    one = "06, 2 threads"
    ways = {one: (PARENT, f"{SPEED} --threads 2")}
    for schedule in ("gpipe", "1f1b", "interleaved --chunks 3", "zb-h1"):
        ways[f"12, `--pp 2 --pipeline {schedule}`, 1 thread each"] = (
            CHAPTER, f"{SPEED} --threads 1 --pp 2 --pipeline {schedule}")
    runs = take_turns(ROUNDS, ways, text)
    median = {name: statistics.median(ms) for name, ms in step_ms(runs).items()}
    rows = [[name, f"{ms:.0f}", f"{median[one] / ms:.2f}", f"`{runs[name][0].hash[-1]}`"]
            for name, ms in median.items()]
    head = ["", "ms a step", "speed to one rank", "hash of the weights"]
    return long_table("Speed", head, rows, shown=[0, 2, 4])


def measure():
    found = dict(bubbles())
    bubble_table = found.pop(None)
    picture(found)
    text = short_text(batch=16, seq_len=256)
    return "\n\n".join([
        f"**Bubbles.** `{EVEN} --steps {TIMES} --batch m --pp p`: all stages are nearly equal. (`running`, because merges "
        "of gradient buffers make some backwards longer.) Theory takes these shortest times, in the mean over stages and micro-batches. [Other "
        "stages and micro-batches](../../docs/results/chapter_12.md):",
        bubble_table,
        "A step with 4 stages and 8 micro-batches, put together from the shortest time of each "
        "action; the number is the micro-batch, and a stage's second model chunk (interleaved) is paler:",
        "![timelines of gpipe, 1f1b, interleaved and zb-h1 on four stages](bubble.svg)",
        f"**Memory.** `{MEMORY} --pp 4`: 8 micro-batches. Peak bytes of a stage, predicted and measured alike. "
        "[All schedules](../../docs/results/chapter_12.md#memory):",
        memory(text),
        "**Traffic.** The same run:",
        traffic(text),
        f"**Speed.** `{SPEED}`: 8 micro-batches, medians of {ROUNDS} runs that took turns "
        "([two schedules more](../../docs/results/chapter_12.md#speed)):",
        speed(text),
    ])
