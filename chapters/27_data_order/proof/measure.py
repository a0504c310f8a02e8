"""The measured tables of chapter 27: resumes on other ranks, the shares of sources, reading ahead."""

import shutil

from measure import ROOT, TEXT, run, table, take_turns

CHAPTER = "27_data_order"
SOURCES = "--sources runs/bible.txt:3,runs/lines.txt:1"
DOCUMENTS = f"--documents --end-of-text 10 --pack-window 64 --threads 1 {SOURCES}"
SMALL = f"--model tiny --layers 2 --batch 8 {DOCUMENTS}"
HALF = ROOT / "runs/half27"


def first_lines(count):
    path = ROOT / "runs/lines.txt"
    path.write_bytes(b"".join(TEXT.read_bytes().splitlines(True)[:count]))
    return path


def resumes(part):
    rows = [["8 ranks, never stopped", f"`{run(CHAPTER, f'{SMALL} --steps 12 --ranks 8', part).hash[-1]}`"]]
    shutil.rmtree(HALF, ignore_errors=True)
    run(CHAPTER, f"{SMALL} --steps 5 --ranks 8 --save {HALF}", part)
    for name, flags in {"1 rank": "", "2 ranks, micro-batches of 1": "--ranks 2 --micro-batch 1",
                        "4 ranks, unpacked": "--ranks 4 --unpacked"}.items():
        r = run(CHAPTER, f"{SMALL} --steps 12 {flags} --load {HALF}", part)
        rows.append([f"8 ranks to step 5, then {name}", f"`{r.hash[-1]}`"])
    return table(["run of 12 steps", "hash of the weights"], rows)


def shares(part):
    rows = []
    for source in run(CHAPTER, f"{SMALL} --steps 60", part).report["extra"]["sources"]:
        rows.append([f"`{source['path']}`", source["weight"], f"{source['documents']:,}",
                     f"{source['dealt']:,}", f"{source['dealt'] / source['documents']:.3f}",
                     f"{source['targets']:,}"])
    return table(["source", "weight", "documents", "dealt", "epochs", "tokens learned"], rows)


def reading(part):
    rows = []
    runs = take_turns(3, {name: (CHAPTER, f"--model {name} --batch 16 {DOCUMENTS} --steps 60")
                          for name in ("nano", "tiny")}, part)
    for name, some in runs.items():
        alone, need, waited = [], [], []
        for r in some:
            extra = r.report["extra"]
            targets, spent = extra["packing"]["trained"], extra["reading"]
            alone.append(targets / spent["seconds"])
            need.append(r.report["tokens_per_second"])
            waited.append(1000 * spent["waited"] / 60)
        spread = lambda values, digits=0: f"{min(values):,.{digits}f} to {max(values):,.{digits}f}"
        rows.append([f"`{name}`", spread(alone), spread(need), spread(waited, 2)])
    return table(["model", "the thread alone, tokens a second", "the step's need", "waited, ms a step"], rows)


def measure():
    part = first_lines(12)
    return "\n\n".join([
        f"`{SMALL} --data runs/lines.txt`, where `lines.txt` is `head -n 12 runs/bible.txt`. One of its lines is "
        "held out, and its epochs are of 11 documents.",
        resumes(part),
        "The same run, 60 steps on one rank:",
        shares(part),
        "Reading ahead, three rounds in turn. Column 2 is the rate of the reading thread without the time when it "
        "waits. Column 3 is the rate at which one thread trains.",
        reading(part),
    ])
