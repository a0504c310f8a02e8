"""The page: one HTML file that needs no other, its charts and its style inside."""

from html import escape
from pathlib import Path

import charts
from charts import MIB
from rows import REFERENCE

STYLE = Path(__file__).with_name("page.css")
HEADER = ["technique", "bits of<br>chapter 06", "ranks<br>TP&times;CP&times;DP&times;PP",
          "loss of the<br>last step", "ms a step,<br>median", "least<br>to most", "speed to<br>chapter 06",
          "least<br>to most", "peak MiB<br>of a rank", "of these<br>states", "MiB sent<br>by a rank",
          "bubble:<br>theory", "<br>measured"]


def mib(count):
    return f"{count / MIB:,.2f}"


def percent(share):
    return "" if share is None else f"{100 * share:.1f}%"


def technique(run):
    """Number and title; and a reason, where the numbers may differ from chapter 06's."""
    why = f'<div class="why">{escape(run.row.differs)}</div>' if run.row.differs else ""
    return f"<small>{run.row.chapter[:2]}</small> {escape(run.row.title)}{why}"


def verdict_cell(run):
    """"same", or the first step whose bits differ."""
    words = "same" if run.verdict == "same" else f"differs, {run.difference.partition(',')[0]}"
    if run.row.key == REFERENCE:
        words = "reference"
    return f'<span class="pill {run.verdict}">{words}</span>'


def mesh(layout):
    """The degrees of all axes; of one rank just "1"."""
    if layout["ranks"] == 1:
        return "1"
    return "{tp}&times;{cp}&times;{dp}&times;{pp}".format(**layout)


def cells(run):
    layout, bubble = run.report["layout"], run.bubble
    return [technique(run), verdict_cell(run), mesh(layout), f"{run.losses[-1]:.6f}",
            f"{run.ms:.1f}", f"<small>{min(run.times):.0f} to {max(run.times):.0f}</small>",
            f"{run.speed:.2f}", f"<small>{min(run.speeds):.2f} to {max(run.speeds):.2f}</small>",
            f"{run.peak / MIB:,.1f}", f"{run.states / MIB:,.1f}", mib(run.sent) if run.sent else "",
            percent(bubble.get("theory")), percent(bubble.get("measured"))]


def table(header, lines):
    head = "".join(f"<th>{cell}</th>" for cell in header)
    return (f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>'
            f'{"".join(lines)}</tbody></table></div>')


def line(values, kind=""):
    return f"<tr{kind}>" + "".join(f"<td>{value}</td>" for value in values) + "</tr>"


def grouped(header, runs, cells):
    """A table of runs, under a heading for what their ranks split."""
    lines, group = [], None
    for run in runs:
        if run.row.group != group:
            group = run.row.group
            lines.append(f'<tr class="group"><td colspan="{len(header)}">{group}</td></tr>')
        lines.append(line(cells(run)))
    return table(header, lines)


def card(title, words, *parts):
    body = "".join(f'<div class="scroll">{part}</div>' if part.startswith("<img") else part for part in parts)
    return f'<section class="card"><h2>{title}</h2><p>{words}</p>{body}</section>'


def verdict(runs, faults):
    """Whether all is as promised, in one box."""
    must = [run for run in runs if not run.row.differs]
    wrong = [run for run in must if run.verdict == "wrong"]
    count = len(must)
    if not wrong and not faults:
        return (f'<div class="verdict good"><strong>{count} run{"s" * (count > 1)}, 1 result</strong><span>In '
                f"each of {len(must[0].trace)} steps their loss, the norm of their gradients and "
                "the hash of all their weights are those of chapter 06, bit for bit.</span></div>")
    told = [f"{run.row.title} ({run.row.chapter[:2]}): {run.difference}" for run in wrong]
    items = "<br>".join(escape(fault) for fault in told + faults)
    return f'<div class="verdict bad"><strong>Broken</strong><span>{items}</span></div>'


def facts(about, left_out):
    entries = list(about.items())
    if left_out:
        entries.append(("Left out", "; ".join(f"{row.chapter[:2]} {row.title}: {reason}"
                                              for row, reason in left_out)))
    items = "".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in entries)
    return f'<dl class="facts">{items}</dl>'


def commands(runs):
    items = "".join(f"<div>{run.row.chapter[:2]} {escape(run.row.title)}"
                    f"<code>{escape(run.command)}</code></div>" for run in runs)
    return ('<section class="card"><details><summary>The commands, to repeat a run</summary>'
            f'<div class="commands scroll">{items}</div></details></section>')


def html(runs, left_out, faults, about):
    """The whole page."""
    traffic = charts.traffic_chart(runs)
    ranks = max(run.report["layout"]["ranks"] for run in runs)
    body = [
        '<h1>All techniques side by side</h1><p class="muted">One model, one text, one global '
        "batch; only the way of training differs.</p>", verdict(runs, faults),
        facts(about, left_out),
        card("Every run in one row", (
            "From chapter 04 on all rows in FP32 train with the same flags, so their numbers must "
            "be the same to the last bit: loss, norm of the gradients, learning rate and hash of "
            "all weights, every step. A row with a note trains differently. Rows of more than one "
            f"rank have {ranks} each, so that they can be compared. Speed is that of "
            "chapter 06 in the same round: the median over rounds, and the least and the most. All ranks share the cores of "
            "one machine, so it tells what a layout costs here, not what it gains on many machines; "
            "memory and traffic would be the same there. States are weights, gradients and what the "
            "optimizer remembers: what ZeRO shards."),
             grouped(HEADER, runs, cells)),
        card("Time of a step", "Summing, sending and waiting come on top of the arithmetic, which "
             "is the same in all FP32 rows but the one that recomputes.", charts.time_chart(runs)),
        card("Memory of every rank", (
            "Recomputation shrinks what is kept of activations; ZeRO-1, 2 and 3 split optimizer "
            "states, then gradients, then parameters; tensor and pipeline parallelism split the "
            "layers and all that belongs to them. Workspace includes the buffers beside Grad "
            "in which gradients of several micro-batches are summed; one rank has most micro-batches. "
            "Chapters 01 to 03 know no micro-batches: they hold all activations of a batch, and are left "
            "out here."), charts.memory_chart(runs)),
    ]
    if traffic:
        body.append(card("Traffic", (
            "DDP and ZeRO-1 send gradients once a step, ZeRO-2 and ZeRO-3 something in every "
            "micro-batch. Tensor parallelism sends activations four times a layer, a pipeline "
            "only where two stages meet."), traffic))
    body += [commands(runs),
             "<footer>Reports and traces of all runs lie in "
             "<a href='runs/'>runs/</a>. What a rank "
             "sends is that of a step, in the table the mean over ranks: half the difference of a "
             "run of one step and one of three, so that nothing but steps is in it. Time leaves out "
             "the hash of the weights.</footer>"]
    return ('<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
            '<meta name="viewport" content="width=device-width, initial-scale=1">'
            f"<title>Ladder: all techniques side by side</title><style>{STYLE.read_text()}</style>"
            f"</head><body><main>{''.join(body)}</main></body></html>\n")
