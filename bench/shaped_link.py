#!/usr/bin/env python3
"""What overlapping buys: data-parallel training on a link of 1 Gbit/s, which one machine pretends.

    cmake --build --preset cpu --target ch07_ddp
    python3 bench/shaped_link.py

What hiding buys where ranks share a sequence (--context, chapter 20) is measured on the same link.

Two ranks of one thread each are processes that talk TCP over the loopback of a network namespace
of their own, where a token bucket lets 1 Gbit/s pass, both directions together. The model is so
large that its messages take about as long as backward. The ways to reduce take turns; medians
count. Needs iproute2, and leave to make a namespace: root, or user namespaces.

--stages compares chapters 07 to 10, and --context the ways of 20. --picture FILE.svg draws one step
of the first and of the fastest way, or of gather and ring.
"""

import argparse
import os
import statistics
import sys
import tempfile

from ranks import (MPIRUN, RESULTS, ROOT, data_file, in_turns, ladder, medians, ratio, spread,
                   table, time_in)
from results import write_section
from timeline_svg import save, what_is_missing

INSIDE = "LADDER_SHAPED_LINK"
BIN, ROUNDS = ROOT / "build/cpu/bin", 3
SHAPE = ["tc", "qdisc", "add", "dev", "lo", "root", "tbf", "rate", "1gbit"]
LAUNCH = [*MPIRUN, "-n", "2", "--mca", "btl", "self,tcp", "--mca", "btl_tcp_if_include", "lo"]
BUCKETS_MB = {"bucketed": [0, 25], "overlapped": [0, 8, 16, 25]}
STAGES = {"07": ("ch07_ddp", ["--bucket-mb=0"]),
          "08": ("ch08_zero1", ["--bucket-mb=0"]),
          "09": ("ch09_zero2", []),
          "09 bucketed": ("ch09_zero2", ["--ddp=bucketed"]),
          "10": ("ch10_zero3", []),
          "10 on demand": ("ch10_zero3", ["--prefetch=0"]),
          "10 kept": ("ch10_zero3", ["--reshard-after-forward=0"])}
# So long a sequence that attention works longer on keys than the link takes to bring the next ones.
CONTEXT_MODEL = ["--layers=4", "--channels=256", "--micro-batch=1", "--cp=2"]
CONTEXT = {way: ("ch20_context_parallel", [*CONTEXT_MODEL, f"--context={way}"])
           for way in ["gather", "ulysses", "ring"]}


def enter_namespace():
    """Starts this script again, in a namespace whose loopback is slow. It ends with the script."""
    user = [] if os.geteuid() == 0 else ["--map-root-user"]
    shape = f"ip link set lo up && {' '.join(SHAPE)} burst 512kb latency 100ms"
    again = 'exec "$0" "$@"'
    os.environ[INSIDE] = "1"
    os.execvp("unshare", ["unshare", "--net", *user, "bash", "-c", f"{shape} && {again}",
                          sys.executable, *sys.argv])


def ways(args):
    """Name -> program and flags; the first is what the others are held against."""
    if args.stages or args.context:
        return {name: (BIN / program, flags)
                for name, (program, flags) in (CONTEXT if args.context else STAGES).items()}
    named = {"naive": ["--ddp=naive"]}
    for mode, sizes in BUCKETS_MB.items():
        named.update({f"{mode}, buckets of {mb} MiB": [f"--ddp={mode}", f"--bucket-mb={mb}"]
                      for mb in sizes})
    return {name: (BIN / "ch07_ddp", flags) for name, flags in named.items()}


def run(args):
    """({way: ms a step, of each round}, {way: its last report}, [naive rows of each round])."""
    with tempfile.TemporaryDirectory() as folder:
        flags = [f"--data={data_file(folder, args.batch, args.seq_len)}", f"--model={args.model}",
                 f"--batch={args.batch}", f"--seq-len={args.seq_len}", f"--steps={args.steps}",
                 "--threads=1"]
        reports, rows = {}, {}

        def step_ms(name, program, more):
            reports[name], last = ladder(program, [*flags, *more], LAUNCH)
            rows.setdefault(name, []).append(last)
            return reports[name]["step_ms_median"]

        chosen = {name: how for name, how in ways(args).items() if name in (args.only or [name])}
        times = in_turns(ROUNDS, {name: lambda name=name, how=how: step_ms(name, *how)
                                  for name, how in chosen.items()})
    return times, reports, rows


def compared(args, times, first, columns):
    """A table of ways: columns are {title: cell of a way's name}; then times, and ratios to the first."""
    median = medians(times)
    rows = [[*(cell(name) for cell in columns.values()), f"{median[name]:.0f}", spread(times[name]),
             f"{ratio(times, first, name):.2f}"] for name in times]
    return table([*columns, "ms a step, median", f"of {ROUNDS} rounds", f"times as fast as {first}"], rows)


def ms_on_the_link(sent):
    """Both ranks' bytes, at 1 Gbit/s."""
    return 2 * sent * 8 / 1e6


def run_text(args):
    return f"batch {args.batch}, {args.seq_len} tokens, 2 ranks of 1 thread, AdamW, FP32"


def body(args, times, reports, rows):
    naive = [(time_in(r, lambda name: "_backward_" in name),
              time_in(r, lambda name: name == "wait_for_gradients"), ms)
             for r, ms in zip(rows["naive"], times["naive"])]
    backward, waiting, _ = (statistics.median(column) for column in zip(*naive))
    limit = statistics.median(ms / (ms - min(b, w)) for b, w, ms in naive)
    sent = reports["naive"]["extra"]["traffic"]["measured"]
    # One more all-reduce a step counts the targets.
    messages = lambda name: reports[name]["comm"][0]["all_reduce"]["calls"] // args.steps - 1
    return "\n".join([
        f"`{args.model}`, {run_text(args)}. In a naive step backward takes {backward:.0f} ms. The all-reduces after "
        f"it take {waiting:.0f} ms. By count they take {ms_on_the_link(sent):.0f} ms: each of the two ranks sends "
        f"{sent:,} bytes, and both directions share the 1 Gbit/s of the link. A step would be {limit:.2f} times as "
        "fast if the longer of backward and the all-reduces hid the shorter.", "",
        compared(args, times, "naive", {"gradients": str, "messages a step": messages}), "",
        "A bucket holds whole sections: blocks, the embedding, the head. A bucket of 0 MiB holds one section. "
        "`naive` sends each tensor by itself. \"Times as fast\" is the median of the ratios of the rounds."])


def row_name(name):
    """The chapter and all its flags, for one of STAGES; other ways are named so already."""
    if name not in STAGES:
        return name
    return ", ".join([name[:2], *(f"`{flag.replace('=', ' ')}`" for flag in STAGES[name][1])])


def stages_body(args, times, reports):
    """Chapters 07 to 10, each as fast as it goes."""
    sent = lambda name: reports[name]["extra"]["traffic"]["measured"]
    return "\n".join([f"`{args.model}`, {run_text(args)}, one micro-step.", "", compared(args, times, next(iter(times)), {
        "chapter": row_name, "gradients and weights, bytes a rank sends a step": lambda name: f"{sent(name):,}",
        "ms on the link": lambda name: f"{ms_on_the_link(sent(name)):.0f}"})])


def context_body(args, times, reports):
    """The ways of chapter 20. Gradients and weights travel, too, as much in each of them."""
    sent = lambda name: reports[name]["extra"]["context"]["sent"]["measured"]
    other = reports["gather"]["extra"]["traffic"]["measured"]
    flags = " ".join(flag.replace("=", " ") for flag in CONTEXT_MODEL)
    return "\n".join([
        f"`--model {args.model} {flags}`, {run_text(args)}. For gradients and weights a rank sends {other:,} bytes more, "
        f"{ms_on_the_link(other):.0f} ms on the link, whatever the way.", "",
        compared(args, times, "gather", {
            "way": lambda name: f"`--context {name}`",
            "bytes a rank sends a step for attention": lambda name: f"{sent(name):,}",
            "ms on the link": lambda name: f"{ms_on_the_link(sent(name)):.0f}"})])


def fastest(times):
    median = medians(times)
    return min(median, key=median.get)


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", help="default: small; with --context llama-nano")
    parser.add_argument("--batch", type=int, help="default: 32; with --context 1")
    parser.add_argument("--seq-len", type=int, help="default: 192; with --context 2048")
    parser.add_argument("--steps", type=int, default=4, help="of a run; the median counts")
    parser.add_argument("--stages", action="store_true",
                        help="chapters 07 to 10 beside each other, instead of ways to do 07")
    parser.add_argument("--context", action="store_true", help="the ways of chapter 20")
    parser.add_argument("--only", type=lambda text: text.split(";"),
                        help="of the ways, these; as '08;10', which are also those of a picture")
    parser.add_argument("--picture", help="an SVG file to write")
    parser.add_argument("--write", action="store_true",
                        help="put the result into docs/results/data_parallel.md")
    args = parser.parse_args()
    if args.stages and args.context:
        parser.error("--stages and --context: legal is one of them")
    for name, value in zip(("model", "batch", "seq_len"),
                           ("llama-nano", 1, 2048) if args.context else ("small", 32, 192)):
        if getattr(args, name) is None:
            setattr(args, name, value)
    if args.only and not {*args.only} <= {*ways(args)}:
        parser.error(f"--only: legal are {'; '.join(ways(args))}")
    if args.only and args.write:
        parser.error("--write takes all ways, without --only")
    if args.picture and what_is_missing():
        parser.error(f"--picture: {what_is_missing()}")
    return args


def main():
    args = parse_args()
    if INSIDE not in os.environ:
        enter_namespace()
    times, reports, rows = run(args)
    if args.context:
        section, title, text = ("context", "The ways of chapter 20 on the same link",
                                context_body(args, times, reports))
    elif args.stages or args.only:
        section, title, text = ("stages", "Chapters 07 to 10 on the same link",
                                stages_body(args, times, reports))
    else:
        section, title, text = ("shaped_link", "On a link of 1 Gbit/s",
                                body(args, times, reports, rows))
    if args.picture:
        pair = ["gather", "ring"] if args.context else [next(iter(times)), fastest(times)]
        shown = {name: rows[name][-1] for name in args.only or pair}
        save(args.picture, shown, step=args.steps // 2)
    print(f"\n{text}")
    if args.write:
        write_section(RESULTS, section, title, text)


if __name__ == "__main__":
    main()
