"""The measured tables of chapter 07: messages, bytes and bits, and what a fault does."""

import statistics

from measure import long_table, result, run, short_text, table, take_turns

CHAPTER, PARENT = "07_ddp", "06_checkpointing"
SMALL = "--model small --batch 8 --steps 5"
TINY = "--model tiny --batch 16 --steps 20"
FAULTY = "--model tiny --batch 8 --steps 300 --ranks 2 --threads 1 --ddp bucketed"
AT = 100  # the step of the fault


def messages(r):
    """All-reduces of gradients in a step; one more counts the targets."""
    return r.report["comm"][0]["all_reduce"]["calls"] // r.report["steps"] - 1


def traffic(r):
    bytes_ = r.report["extra"]["traffic"]
    return f"{bytes_['predicted']:,} / {bytes_['measured']:,}"


def ways(rounds=3):
    """When gradients are reduced, and in how many messages."""
    flags = {"chapter 06, one rank of 2 threads": (PARENT, f"{SMALL} --threads 2")}
    for way in ["naive", "overlapped --bucket-mb 0", "overlapped"]:
        flags[f"`--ddp {way}`"] = (CHAPTER, f"{SMALL} --ranks 2 --threads 1 --ddp {way}")
    rows = []
    for name, finished in take_turns(rounds, flags, short_text(batch=8, seq_len=256)).items():
        r = finished[-1]
        sent = [messages(r), traffic(r)] if flags[name][0] == CHAPTER else ["", ""]
        ms = statistics.median(r.report["step_ms_median"] for r in finished)
        rows.append([name, *sent, f"{ms:.0f}", f"`{r.hash[-1]}`"])
    head = ["", "messages a step", "bytes that a rank sends a step, predicted / measured",
            "ms a step", "hash of the weights after 5 steps"]
    return table(head, rows)


def reductions():
    """How a sum goes over the ranks: bytes of the rank that sends most, and bits."""
    text = short_text(batch=16, seq_len=64)
    one, ranks = run(PARENT, TINY, text), 4
    rows = []
    # By rank 0, which no rank exceeds: 4 P bytes, times what common/comm/reduction.h says.
    times = {"halving": 2 * (ranks - 1) / ranks, "ring": 2 * (ranks - 1) / ranks,
             "tree": ranks.bit_length() - 1, "naive": ranks - 1}
    for reduction in ["halving", "tree", "ring", "naive", "native"]:
        r = run(CHAPTER, f"{TINY} --ranks {ranks} --threads 1 --reduction {reduction}", text)
        gradient = r.memory("Grad")
        ours = reduction in times
        predicted = f"{times[reduction] * gradient:,.0f}" if ours else "-"
        # Nobody sees the library's own messages: Comm counts what its operation must send.
        measured = f"{r.report['extra']['traffic']['measured']:,}" + " (computed)" * (not ours)
        apart = max(abs(a - b) for a, b in zip(one.loss, r.loss))
        rows.append([ranks, f"`{reduction}`",
                     f"{predicted} / {measured}",
                     "same" if r.hash == one.hash else "other", f"{apart:.1e}"])
    head = ["ranks", "`--reduction`", "bytes that rank 0 sends a step, predicted / measured",
            "bits of chapter 06", "largest difference of a loss"]
    return long_table("Ways to sum", head, rows, shown=[0, 2, 3])


def memory():
    text = short_text(batch=8, seq_len=256)
    categories = ["Param", "Grad", "Optim", "Activation", "Workspace", "Comm"]
    rows = []
    for ranks in (1, 2, 8):
        r = run(CHAPTER, f"--model small --batch 8 --steps 1 --ranks {ranks} --threads 1", text)
        cells = [(r.memory(c, "predicted"), r.memory(c)) for c in categories]
        cells.append(tuple(sum(column) for column in zip(*cells)))
        rows.append([ranks, *(f"{m:,}" if p == m else f"{p:,} / {m:,}" for p, m in cells)])
    return table(["ranks", *categories, "total"], rows)


def faults():
    """One collective of 300 steps goes wrong. Each step has two all-reduces: the count of targets,
    and the gradients, in one bucket."""
    kinds = {"none": "", "the count of targets is not summed": f"skip:all_reduce:{2 * AT}",
             "gradients are not summed": f"skip:all_reduce:{2 * AT + 1}",
             "gradients are summed twice": f"twice:all_reduce:{2 * AT + 1}",
             "one bit flips on rank 0": f"corrupt:all_reduce:{2 * AT + 1}"}
    rows, sound = [], None
    for what, fault in kinds.items():
        r = run(CHAPTER, f"{FAULTY} --fault {fault}" if fault else FAULTY)
        sound = sound or r
        differs = lambda *columns: next((step for step, both in enumerate(zip(*columns))
                                         if len({*both}) > 1), "never")
        rows.append([what, f"`{fault}`" if fault else "", f"{r.loss[AT]:.4f}", f"{r.norm[AT]:.3f}",
                     f"{r.loss[AT + 1]:.4f}", f"{r.loss[-1]:.4f}", differs(r.norm, sound.norm),
                     differs(r.hash, sound.hash), f"`{r.hash[-1]}`"])
    head = ["", "`--fault`", f"loss of step {AT}", "norm", f"loss of {AT + 1}", "loss of 299",
            "first step with another norm", "first step with other weights", "last hash"]
    return long_table("One collective goes wrong", head, rows, shown=[0, 2, 4])


def measure():
    return "\n\n".join([
        f"`{SMALL}` on the first pages of the text, two ranks of one thread each in one process, "
        "medians of 3 rounds. Messages go through the memory of one machine:",
        ways(),
        "Within one machine there is little to hide, and the thread that communicates takes a core from the "
        "ranks. On a slow link the choice matters. The next table is of two processes over TCP, whose two "
        "directions share 1 Gbit/s, on another machine and with batch 32. In a naive step backward takes 713 ms, and "
        "the all-reduces 705. [More rows](../../docs/results/data_parallel.md#on-a-link-of-1-gbits):",
        result("shaped_link", shown=[0, 3, 6]),
        'One step of two of these rows; "beside" is the thread that communicates:',
        "![one step, naive and overlapped: what the rank computes, and what travels beside]"
        "(timeline.svg)",
        f"`{TINY}`: what rank 0 sends, and whether the bits are those of chapter 06. "
        "[All five ways](../../docs/results/chapter_07.md#ways-to-sum):",
        reductions(),
        "Peak bytes of rank 0, for `--model small --batch 8` and one thread a rank, predicted and measured alike:",
        memory(),
        f"`{FAULTY}`: at step {AT} one collective goes wrong. A step has two all-reduces, the count "
        f"of targets and one bucket, numbered from 0: {2 * AT} and {2 * AT + 1} are those of step {AT}. "
        "[More faults](../../docs/results/chapter_07.md#one-collective-goes-wrong):",
        faults(),
    ])
