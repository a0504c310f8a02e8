"""The measured tables of chapter 15: the gradient noise scale, a ramp of batch sizes."""

from measure import run, table

CHAPTER = "15_batch_size"
TINY = "--model tiny --lr 1e-3 --beta2 0.99"
RAMP = "--model tiny --batch 12 --steps 600 --lr 2e-3 --schedule cosine --warmup-tokens 46080"
KEEP = 0.98  # of noise_scale.h


def noise():
    """A report's averages fade by KEEP a step and never forget a run's first steps, whose gradients
    are the longest. So each row is the average over the steps since the row before: of both sums,
    what was there is taken off."""
    rows = []
    flags = f"{TINY} --batch 32 --micro-batch 4 --clip 1 --schedule constant --noise-scale"
    begin, before = 0, {"signal": 0, "noise": 0}
    for steps in [50, 100, 200, 400]:
        scale = run(CHAPTER, f"{flags} --steps {steps}").report["extra"]["noise_scale"]
        left = KEEP**(steps - begin)
        # An average is a sum over its weights, and those of n steps add up to 1 - KEEP^n.
        sums = {name: scale[name] * (1 - KEEP**steps) for name in before}
        G, S = ((sums[name] - left * before[name]) / (1 - left) for name in before)
        rows.append([f"{begin} to {steps - 1}", f"{G:.4f}", f"{S:.1f}", f"{S / G:.1f}",
                     f"{64 * S / G:,.0f}", f"{scale['sequences']:.1f}"])
        begin, before = steps, sums
    head = ["steps", "$\\Vert G\\Vert^2$", "$S$", "noise scale, sequences", "in tokens",
            "in the report"]
    return (f"`{flags}`, averages over the steps of each row alone, the last ones weighing most. The last "
            "column is what `--report` says after them, an average over all steps so far:\n\n" + table(head, rows))


def ramp():
    rows = []
    for name, flags in {"12 throughout": "", "4 to step 200, 8 to 400, then 12":
                        "--batch-ramp 4:200,8:400"}.items():
        r = run(CHAPTER, f"{RAMP} {flags}")
        tokens = 64 * (4 * 200 + 8 * 200 + 12 * 200 if flags else 12 * 600)
        rows.append([name, f"{tokens:,}", r.lr.index(max(r.lr)) + 1,
                     f"{r.report['val_loss']:.3f}"])
    head = ["batch", "tokens in 600 steps", "steps to the full rate", "validation loss"]
    return (f"A ramp of batch sizes (`{RAMP}`): warmup is counted in tokens, so it takes more steps "
            "while batches are small:\n\n" + table(head, rows))


def ranks():
    rows = []
    flags = f"{TINY} --batch 16 --steps 50 --clip 1 --noise-scale --threads 1"
    for more in ["--micro-batch 4", "--ranks 2 --micro-batch 4 --ddp naive",
                 "--ranks 2 --micro-batch 4 --ddp overlapped", "--ranks 4"]:
        r = run(CHAPTER, f"{flags} {more}")
        scale = r.report["extra"]["noise_scale"]
        rows.append([f"`{more}`", *(f"{scale[n]:.9g}" for n in ("signal", "noise", "sequences")),
                     f"`{r.hash[-1]}`"])
    head = ["layout", "$\\Vert G\\Vert^2$", "$S$", "noise scale", "hash of the weights"]
    return f"`{flags}` on ranks, a small batch of 4 sequences:\n\n" + table(head, rows)


def measure():
    return "\n\n".join([noise(), ranks(), ramp()])
