"""The measured tables of chapter 29: planted faults, what watching costs, and a way back."""

import os
import statistics
import tempfile

from measure import both, run, short_text, table

CHAPTER = "29_monitor"
MODEL = ("--model tiny --layers 4 --channels 64 --heads 4 --seq-len 64 --batch 16 --steps 300 --lr 3e-3 "
         "--warmup 20 --schedule cosine --beta2 0.99 --clip 1 --ranks 2 --threads 1")
EVERY, AT, SEEDS, CLEAN, ROUNDS = 5, 150, range(1, 4), range(1, 7), 9
FAULTS = {"a bad batch": f"--bad-batch {AT}", "the rate times ten": f"--plant rate:{AT}",
          "a block without gradient": f"--plant freeze:{AT}", "shuffled targets": f"--plant shuffle:{AT}",
          "a rank's gradient times ten": f"--plant rank:{AT}"}
KINDS = ["spike", "divergence", "plateau", "jump", "dead block", "drift", "rank", "not finite"]


def alarms(seed, more=""):
    """(step, kind) of all alarms of a run."""
    r = run(CHAPTER, f"{MODEL} --watch-every {EVERY} --alarms --seed {seed} {more}")
    return [(a["step"], a["kind"]) for a in r.report["extra"].get("alarms", [])]


def faults():
    rows = []
    for name, flag in FAULTS.items():
        heard = [alarms(seed, flag) for seed in SEEDS]
        cells = []
        for kind in KINDS:
            first = [min((s for s, k in run if k == kind and s >= AT), default=None) for run in heard]
            delays = [s - AT for s in first if s is not None]
            cells.append(f"{len(delays)} of {len(first)}, {statistics.median(delays):g}" if delays else "")
        rows.append([name, *cells])
    clean = [alarms(seed) for seed in CLEAN]
    rows.append([f"nothing, {len(clean)} seeds", *(sum(k == kind for run in clean for _, k in run) or ""
                                                   for kind in KINDS)])
    head = [kind for kind in KINDS]
    return (f"`{MODEL} --watch-every {EVERY} --alarms`, a fault at step {AT}, {len(SEEDS)} seeds. A cell says in "
            "how many runs the detector has raised an alarm from that step on, and the median delay in steps. The "
            "last row counts false alarms.\n\n" + table(["planted", *head], rows))


def costs():
    model = "--model tiny --batch 8"
    text = short_text(batch=8, seq_len=256)
    rows = []
    for N in (1, 2, 4, 8):
        off, on = (run(CHAPTER, f"{model} --threads 1 --steps 2 --ranks {N}{more}", text)
                   for more in ("", " --watch-every 1"))
        more = [on.memory("Workspace", w) - off.memory("Workspace", w) for w in ("predicted", "measured")]
        sent = on.report["extra"]["watch"]
        rows.append([N, both(*more), both(sent["predicted"], sent["measured"]), f"`{on.hash[-1]}`",
                     "yes" if on.hash == off.hash else "no"])
    memory = (f"`{model} --steps 2`: what `--watch-every 1` adds on rank 0. Predicted and measured are equal where "
              "one number stands.\n\n" + table(["ranks", "bytes of Workspace", "bytes sent in a watched step",
                                                "hash", "the same without watching"], rows))
    flags = {"nothing": "", "`--watch-every 10`": "--watch-every 10", "`--watch-every 1`": "--watch-every 1",
             "`--watch-every 10 --alarms --events`": "--watch-every 10 --alarms --events "}
    times = {name: [] for name in flags}
    for _ in range(ROUNDS):
        for name, more in flags.items():
            with tempfile.TemporaryDirectory() as folder:
                more = more + folder + "/events" if more.endswith("--events ") else more
                before = sum(os.times()[2:4])
                run(CHAPTER, f"{model} --threads 1 --steps 41 {more}", text)
                times[name].append(sum(os.times()[2:4]) - before)
    first = times["nothing"]
    rows = [[name, f"{min(all_s) / 41 * 1e3:.1f}",
             f"{min(all_s) / min(first) - 1:+.1%}"] for name, all_s in times.items()]
    return memory + (f"\n\n`{model} --threads 1 --steps 41`, the processor's time for the whole program divided by its "
                     f"41 steps, the least of {ROUNDS} rounds in turns, and how much more that is than in the first "
                     "row.\n\n" + table(["watched", "ms a step", "more"], rows))


def back():
    rows = []
    for name, more in {"clean": "", "`--bad-batch 150`": "--bad-batch 150",
                       "`--bad-batch 150 --spike-guard 6`": "--bad-batch 150 --spike-guard 6",
                       "`--bad-batch 150 --rewind 2`": "--bad-batch 150 --rewind 2"}.items():
        with tempfile.TemporaryDirectory() as folder:
            save = f"--save {folder}/saved --save-every 40" if "rewind" in name else ""
            r = run(CHAPTER, f"{MODEL} {more} {save}")
        went = r.report["extra"].get("rewinds", [])
        rows.append([name, f"{r.report['val_loss']:.4f}", len(r.report["skipped"]),
                     "; ".join(f"step {w['step']} to {w['to']}, without batches {w['skip_batches']}" for w in went)])
    return f"`{MODEL}`:\n\n" + table(["", "validation loss", "steps skipped", "went back"], rows)


def measure():
    return "\n\n".join([faults(), costs(), back()])
