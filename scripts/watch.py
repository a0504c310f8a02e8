#!/usr/bin/env python3
"""Follows a --trace while it grows: one HTML file that reloads itself.

    scripts/watch.py TRACE              writes TRACE.html every 2 seconds until the run has ended
    scripts/watch.py TRACE --once       writes it once
    scripts/watch.py TRACE --out FILE   writes FILE

A run that still trains writes TRACE.partial. Open the page in any browser; it needs no network.
"""

import argparse
import html
import json
import math
import os
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
WIDTH, HEIGHT, LEFT, BOTTOM, TOP = 640, 200, 62, 30, 10
POINTS = 1200  # at most so many are drawn
CURVES = [("loss", "Loss", "mean over the targets of the batch, before the update"),
          ("grad_norm", "Gradient norm", "before clipping; a logarithmic scale"),
          ("lr", "Learning rate", "")]
STYLE = """
h1 { overflow-wrap: anywhere; }
.curve { display: block; width: 100%; height: auto; color: var(--ink); font-size: 12px; }
.curve text { fill: var(--muted); }
.curve .line { fill: none; stroke: var(--accent); stroke-width: 1.6; }
.curve .grid { stroke: var(--line); }
.curve .bad { fill: var(--bad); }
.now { font-size: 22px; font-weight: 600; font-variant-numeric: tabular-nums; }
@media (max-width: 600px) { .curve { font-size: 20px; } }
"""


def read(trace):
    """The lines so far, in order, and whether the run has ended. Of a step that was taken twice the last
    time counts."""
    partial = Path(f"{trace}.partial")
    path = partial if partial.exists() else Path(trace)
    try:
        lines = path.read_text().splitlines(keepends=True)
        steps = [json.loads(line) for line in lines if line.endswith("\n")]
        kept = {line["step"]: line for line in steps}
    except (OSError, ValueError, KeyError, TypeError) as e:
        raise SystemExit(f"watch.py: {trace}: not a --trace: {e}")
    return [kept[step] for step in sorted(kept)], path == Path(trace)


def ticks(low, high):
    """Some three round numbers in [low, high]."""
    step = 10 ** math.floor(math.log10((high - low) / 2))
    step *= next(m for m in (1, 2, 5, 10) if (high - low) / (step * m) <= 4)
    return [i * step for i in range(math.ceil(low / step), math.floor(high / step) + 1)]


def curve(lines, name):
    """An SVG. NaN and infinities are marks at the top."""
    points = [(line["step"], line["decimal"][name]) for line in lines]
    good = [(x, y) for x, y in points if y is not None and (name != "grad_norm" or y > 0)]
    if not good:
        return "<p class=muted>no finite number yet</p>"
    scale = math.log10 if name == "grad_norm" else float
    low, high = min(scale(y) for _, y in good), max(scale(y) for _, y in good)
    if high - low < 1e-12:
        low, high = low - max(abs(low), 1e-6) / 2, high + max(abs(high), 1e-6) / 2
    first, last = points[0][0], max(points[-1][0], points[0][0] + 1)
    px = lambda x: LEFT + (x - first) / (last - first) * (WIDTH - LEFT - 8)
    py = lambda y: TOP + (high - y) / (high - low) * (HEIGHT - TOP - BOTTOM)
    each = -(-len(good) // POINTS)
    drawn = [good[i] for i in range(0, len(good), each)] + good[-1:]
    label = lambda t: f"{10 ** t:.3g}" if name == "grad_norm" else f"{t:.4g}"
    grid = "".join(f'<line class=grid x1={LEFT} x2={WIDTH - 8} y1={py(t):.1f} y2={py(t):.1f} />'
                   f'<text x={LEFT - 6} y={py(t) + 4:.1f} text-anchor=end>{label(t)}</text>' for t in ticks(low, high))
    grid += "".join(f'<text x={px(t):.1f} y={HEIGHT - 4} text-anchor=middle>{t:g}</text>'
                    for t in ticks(first, last - (last - first) / 20))
    bad = "".join(f'<circle class=bad cx={px(x):.1f} cy={TOP} r=4><title>step {x}: not finite</title></circle>'
                  for x, y in points if y is None)
    path = " ".join(f"{px(x):.1f},{py(scale(y)):.1f}" for x, y in drawn)
    return (f'<svg class=curve viewBox="0 0 {WIDTH} {HEIGHT}" role=img aria-label="{name} by step">{grid}'
            f'<polyline class=line points="{path}" />{bad}</svg>')


def page(trace, lines, ended):
    last = lines[-1]["decimal"] if lines else {}
    number = lambda name: "not finite" if last.get(name) is None else f"{last[name]:.5g}"
    cards = "".join(
        f"<section class=card><h2>{title}</h2><p class=muted>{what}</p><p class=now>{number(name)}</p>"
        f"{curve(lines, name)}</section>" for name, title, what in CURVES) if lines else ""
    state = "The run has ended." if ended else "The page reloads itself every 2 seconds."
    reload = "" if ended else '<meta http-equiv=refresh content=2>'
    css = (ROOT / "scripts/compare/page.css").read_text() + STYLE
    name = html.escape(Path(trace).name)
    steps = f"{len(lines)} steps, the last is step {lines[-1]['step']}" if lines else "no step yet"
    return (f'<!doctype html><html lang=en><head><meta charset=utf-8><title>{name}</title>{reload}'
            f'<meta name=viewport content="width=device-width, initial-scale=1"><style>{css}</style></head>'
            f"<body><main><h1>{name}</h1><p>{steps}. {state}</p>{cards}</main></body></html>\n")


def write(out, text):
    """Writes the page at once: a browser that reloads sees the old page or the new one, never a part."""
    temporary = out.with_name(out.name + ".partial")
    try:
        temporary.write_text(text)
        os.replace(temporary, out)
    except OSError as e:
        raise SystemExit(f"watch.py: {out}: cannot be written: {e.strerror}")


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("\n\n")[1])
    parser.add_argument("trace")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--once", action="store_true")
    args = parser.parse_args()
    out = args.out or Path(f"{args.trace}.html")
    if out.exists() and not out.read_bytes().startswith(b"<!doctype html><html lang=en><head>"):
        raise SystemExit(f"watch.py: {out}: there is something that is no page of watch.py; legal is another --out")
    while True:
        lines, ended = read(args.trace)
        write(out, page(args.trace, lines, ended))
        if args.once or ended:
            return
        time.sleep(2)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        pass
    except SystemExit as e:
        if isinstance(e.code, str):
            print(e.code, file=sys.stderr)
            sys.exit(2)
        raise
