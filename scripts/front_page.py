#!/usr/bin/env python3
"""What the README shows and a program can know: its picture, and the tables of chapters.

    scripts/front_page.py --embed      write both anew
    scripts/front_page.py --check      fail if the tree holds others
    scripts/front_page.py --measure    run chapters 06 to 10 of build/cpu first, and note what they count
    scripts/front_page.py --programs DIR   fail if the programs of DIR count something else

The picture, docs/pictures/zero.svg, is drawn from docs/pictures/zero.json alone. The tables stand
between <!-- chapters:begin --> and <!-- chapters:end -->. Its minutes are the sum of those in
a chapter's "A way through". Lines are to the next ten, so that not every change of a chapter is one of
the README.
"""

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import chapter_budget
import chapter_tree
import grammar_text
import marked
from marked import ROOT, replaced, settle, tell

DATA, PICTURE = "docs/pictures/zero.json", "docs/pictures/zero.svg"

ANSWERS = {
    "01_sgd": "What happens in one training step, and where does each of its bytes lie?",
    "02_adamw": "Why does AdamW decay weights apart from the gradient? What do optimizer states cost?",
    "03_schedules": "Why does a run warm up, and what does the shape of the decay change?",
    "04_clipping": "How does a batch that does not fit still give the same bits? What does clipping change?",
    "05_mixed_precision": "Which numbers must stay FP32, and why does FP16 need a loss scale?",
    "06_checkpointing": "How many bytes does recomputation save, and how much time does it take?",
    "07_ddp": "Who sends what when, and why is the sum over ranks the same for any number of ranks?",
    "08_zero1": "Why does no rank need all optimizer states, and what does that cost on the wire?",
    "09_zero2": "When can a rank give a gradient away, and what does accumulation cost then?",
    "10_zero3": "How does a model train whose weights no rank holds whole (FSDP)?",
    "11_tensor_parallel": "Which matrix is cut by rows, which by columns, and where must ranks talk?",
    "12_pipeline_parallel": "What is a bubble, and what does each schedule pay to make it smaller?",
    "13_3d_parallel": "How do three axes share a mesh, and which of them belongs on the fastest link?",
    "14_stability": "Which steps do harm although nothing is NaN, and how does a run refuse them?",
    "15_batch_size": "How large a batch is worth its tokens, and how does a run measure that?",
    "16_fp8": "What does FP8 keep of a number, and who chooses its scale?",
    "17_head_chunks": "Why are logits the largest activation, and how can they never be held whole?",
    "18_offload": "What can wait in a file during a step, and what does the step wait for then?",
    "19_llama": "What do RMSNorm, RoPE, SwiGLU and grouped heads change, in loss and in bytes?",
    "20_context_parallel": "How do ranks split one long sequence, and what do three ways to do so send?",
    "21_moe": "How can a model have many more weights than a token uses, and who sees that all are used?",
    "22_expert_parallel": "What travels when experts live on other ranks, and why do the bits stay the same?",
    "26_packing": "How do documents share rows without seeing each other, and what does padding cost?",
    "27_data_order": "In which order does a run read its documents, and how do other ranks go on in it?",
    "28_async_checkpoint": "How long must training wait for a checkpoint, and what survives a crash while it is written?",
    "29_monitor": "Is this run healthy, which layer broke first, and how does it go back?",
    "30_hsdp": "Why gather weights from far away, if near ranks hold a whole model among them?",
    "32_optimizers": "What does an update read: an element, a block, rows and columns, and who can then own it?",
    "33_mesh": "Five axes at once: which number is summed over which ranks, and who notices if it is not?",
    "34_scaling": "How does a rate that suits a small model suit a large one, and how large should that be?",
    "38_pretrain": "What does a program look like that has what a real run wants, made of branches by merging?",
    "23_planner": "Does a run fit, how long does it take, what does it cost, and which layout is best?",
    "31_generate": "How can text be written a token at a time, and have the bits of the forward that trained?",
    "36_finetune": "How does a model learn to answer and to stop, and which of its weights must learn for that?",
    "37_rl": "How does a model learn from what its own answers earn, if nobody writes the answers?",
    "35_evaluate": "What is a model's score made of, and why must no batch change it?",
    "24_tokenizer": "What is a token, who chooses it, and why must two programs agree on every one?",
    "25_corpus": "Which documents are worth training on, and why must a choice depend on no order?",
}


# -- the table ---------------------------------------------------------------------------------


def minutes(readme):
    way = re.search(r"^\*\*A way through\.\*\* .+$", readme, flags=re.MULTILINE)
    return sum(int(each) for each in re.findall(r"(\d+) minutes", way[0]))


def tens(count):
    return max(10, 10 * round(count / 10))


def lessons(root, name):
    """Lines of code of main.cpp and the headers beside it. What lies in proof/ is not read first."""
    sources = [chapter_budget.main_of(root, name), *sorted((root / "chapters" / name).glob("*.h"))]
    return sum(len(chapter_budget.counted_lines(path.read_text(encoding="utf-8"))) for path in sources)


def table(root):
    """Three tables: the trunk, branches, and programs that train no model."""
    groups = {"The trunk": lambda row: row.in_trunk, "Branches": lambda row: not row.in_trunk and row.has_diff,
              "Programs that train no model": lambda row: not row.has_diff}
    parts = []
    for title, is_in in groups.items():
        lines = [f"| {title}, and what you can answer afterwards | min | lines | own |", "|---|--:|--:|--:|"]
        for name, row in sorted(chapter_tree.chapters(root).items()):
            if not is_in(row):
                continue
            readme = (root / "chapters" / name / "README.md").read_text(encoding="utf-8")
            lines.append(f"| [{name}](chapters/{name}/README.md)<br>{ANSWERS[name]} | {minutes(readme)} "
                         f"| {tens(lessons(root, name))} | {tens(chapter_budget.own(root, row))} |")
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


# -- the picture -------------------------------------------------------------------------------

RANKS = 8
FLAGS = "--model tiny --batch 8 --steps 2 --quiet"
COLUMNS = {"07_ddp": "07 data parallel", "08_zero1": "08 ZeRO-1", "09_zero2": "09 ZeRO-2", "10_zero3": "10 ZeRO-3"}
PARTS = {"Param": ("parameters", "#4c78a8"), "Grad": ("gradients", "#f28e2b"),
         "Optim": ("optimizer states", "#59a14f"), "Sections": ("whole sections", "#b279a2")}


def measured(programs):
    """What rank 0 of each chapter holds, and the hash of its weights after two steps."""
    counts, workspace = {}, {}
    with tempfile.TemporaryDirectory() as folder:
        text, report, trace = (Path(folder, name) for name in ("text.txt", "report.json", "trace.jsonl"))
        text.write_text(grammar_text.text(), encoding="ascii")
        for chapter, ranks in {"06_checkpointing": 1, **dict.fromkeys(COLUMNS, RANKS)}.items():
            command = [programs / f"ch{chapter}", "--data", text, *FLAGS.split(), "--report", report,
                       "--trace", trace, *(["--ranks", str(ranks)] if ranks > 1 else [])]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            memory = json.loads(report.read_text())["memory"][0]
            last = json.loads(trace.read_text().splitlines()[-1])
            workspace[chapter] = memory["Workspace"]["measured"]
            counts[chapter] = {"ranks": ranks, "hash": last["param_hash"],
                               **{part: memory[part]["measured"] for part in PARTS if part in memory}}
    for chapter in COLUMNS:  # those in Workspace, which data parallelism does not need
        counts[chapter]["Sections"] = workspace[chapter] - workspace["07_ddp"]
    return counts


STYLE = """
text{font:15.5px system-ui,-apple-system,"Segoe UI",Helvetica,Arial,sans-serif;fill:#1f2328}
.small{font-size:14px;fill:#59636e}.mono{font:14px ui-monospace,Menlo,Consolas,monospace}
.bold{font-weight:600}.line{stroke:#8c959f}
@media(prefers-color-scheme:dark){text{fill:#e6edf3}.small{fill:#9da7b3}}
"""
TOP, FLOOR, LEFT, STEP, WIDTH = 84, 250, 20, 155, 124  # narrow, so that a phone shows large letters
SECONDS = 10


def keyframes(name, before, after, begin):
    """From one state to another `begin` seconds into the loop. It begins with the other, which a
    print or a preview shows, and which is what the picture says."""
    first, second = 100 * begin / SECONDS, 100 * (begin + 0.9) / SECONDS
    return (f"@keyframes {name}{{0%,25%{{{after}}}32%,{first:.0f}%{{{before}}}{second:.0f}%,100%{{{after}}}}}"
            f".{name}{{animation:{name} {SECONDS}s ease-in-out infinite}}")


def bars(counts, scale):
    """Elements and style of the bars. Each bar begins at the height of data parallelism's, and falls."""
    full, out, style = counts["07_ddp"], [], []
    for column, (chapter, title) in enumerate(COLUMNS.items()):
        x, y, y_full, begin = LEFT + STEP * column, FLOOR, FLOOR, 2.8 + 1.2 * column
        for part, (_, color) in PARTS.items():
            height, height_full = counts[chapter][part] * scale, full[part] * scale
            if height == 0:
                continue
            y, y_full = y - height, y_full - height_full
            name = f"b{column}{part[0].lower()}"
            out.append(f'<rect class="{name}" x="{x}" y="{y:.2f}" width="{WIDTH}" height="{height:.2f}" '
                       f'fill="{color}"/>')
            if (y, height) != (y_full, height_full):
                stretch = height_full / height
                style.append(keyframes(name, f"transform:translateY({y_full - stretch * y:.2f}px) "
                                             f"scaleY({stretch:.4f})", "transform:none", begin))
        total = sum(counts[chapter][part] for part in PARTS) / 2**20
        middle = x + WIDTH / 2
        out.append(f'<text class="n{column} bold" x="{middle}" y="{y - 8:.2f}" text-anchor="middle">'
                   f"{total:.2f} MiB</text>")
        style.append(keyframes(f"n{column}", "opacity:0", "opacity:1", begin + 0.5) if column else "")
        out += [f'<text class="bold" x="{middle}" y="{FLOOR + 22}" text-anchor="middle">{title}</text>',
                f'<text class="mono" x="{middle}" y="{FLOOR + 44}" text-anchor="middle">'
                f'{counts[chapter]["hash"]}</text>']
    return out, "".join(style)


def picture(counts):
    full = sum(counts["07_ddp"][part] for part in PARTS)
    elements, style = bars(counts, (FLOOR - TOP) / full)
    keys = []
    for place, (name, color) in enumerate(PARTS.values()):
        keys += [f'<rect x="{LEFT + STEP * place}" y="40" width="11" height="11" fill="{color}"/>',
                 f'<text class="small" x="{LEFT + 17 + STEP * place}" y="50">{name}</text>']
    alone = counts["06_checkpointing"]["hash"]
    return "\n".join([
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 630 346" width="630" height="346" role="img">',
        f"<title>What one of {RANKS} ranks holds in chapters 07 to 10, and the weights that all of them have "
        "in common</title>",
        f"<style>{STYLE}{style}",
        "@media(prefers-reduced-motion:reduce){*{animation:none!important}}</style>",
        f'<text class="bold" x="{LEFT}" y="24">One of {RANKS} ranks holds less and less. '
        "All compute the same bits.</text>",
        *keys, f'<path class="line" d="M{LEFT - 10} {FLOOR}H{LEFT + 3 * STEP + WIDTH + 10}"/>', *elements,
        f'<text class="small" x="{LEFT}" y="{FLOOR + 70}">Below each bar: the hash of all weights after two '
        "steps.</text>",
        f'<text class="small" x="{LEFT}" y="{FLOOR + 89}">One rank alone has {alone}.</text>',
        "</svg>", ""])


# -- both --------------------------------------------------------------------------------------


def faults_of(root, repair=False):
    unanswered = ANSWERS.keys() ^ chapter_tree.chapters(root).keys()
    if unanswered:
        return [f"scripts/front_page.py: ANSWERS and chapters/ differ in {', '.join(sorted(unanswered))}"]
    drawn, command = picture(json.loads((root / DATA).read_text(encoding="utf-8"))), "scripts/front_page.py --embed"
    return (settle(root, "README.md", lambda text: replaced(text, "chapters", table(root)), repair, command)
            + settle(root, PICTURE, lambda _: drawn, repair, command))


def differences(programs, root=ROOT):
    noted, counts = json.loads((root / DATA).read_text(encoding="utf-8")), measured(programs)
    return [f"{DATA}: {chapter}: {noted.get(chapter)}, but the program has {counts[chapter]}"
            for chapter in counts if counts[chapter] != noted.get(chapter)]


def main(words):
    if words[:1] == ["--programs"] and len(words) == 2:
        return tell(differences(Path(words[1])))
    if words == ["--measure"]:
        counts = measured(ROOT / "build/cpu/bin")
        lines = ",\n".join(f'"{chapter}": {json.dumps(of)}' for chapter, of in counts.items())
        (ROOT / DATA).write_text(f"{{\n{lines}\n}}\n", encoding="utf-8")
        words = ["--embed"]
    return marked.main(words, faults_of)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
