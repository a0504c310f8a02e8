"""The measured tables and the chart of chapter 25: a funnel of the Bible with junk and duplicates
planted in it, candidates and recall, and time and memory of a million documents."""

import contextlib
import gzip
import itertools
import json
import pathlib
import random
import re
import subprocess
import sys
import tempfile

from measure import ROOT, TEXT, table
from plot import pyplot, save

HERE = pathlib.Path(__file__).resolve().parents[1]
PROGRAM = ROOT / "build/cpu/bin/ch25_corpus"
BANDS, ROWS, PAIRS = 14, 8, 1000
ALL_RULES = "--filter gopher,repetition,c4,fineweb"
# Linux counts into the peak of a process that of the one that has forked it: so a small one does.
MEASURED = """
import os, sys
_, status, used = os.wait4(os.spawnv(os.P_NOWAIT, sys.argv[1], sys.argv[1:]), 0)
print(used.ru_utime + used.ru_stime, 1024 * used.ru_maxrss)
sys.exit(os.waitstatus_to_exitcode(status))
"""
DELETED = "c4: lines deleted"
FOLDERS = {"share/doc": "*", "lib/python3": "*.py", "include": "*.h", "share/perl": "*.p[lm]"}
EXAMPLES = """# What the rules of chapter 25 throw away

> `scripts/measure.py 25` makes this page, and no hand changes it. It asks each filter of its own about {texts:,} texts: a sample of the documentation, headers, Python and Perl under /usr of a Debian system; and the Bible, whole and in parts of twenty verses.

Of each rule the page shows how many texts it removed, and the beginnings of ten: of all, if there are fewer. A text is counted under the first rule of its filter that it breaks. Rules that removed nothing are not here. Are you of the same opinion as the rule?"""


def corpus(texts, flags, read=True):
    """(what it prints, objects that stay, objects that go, seconds of processor time, peak of memory in
    bytes). The id of a document is its place, or its name if `texts` has names. Objects are read only
    where they are wanted."""
    named = texts.items() if isinstance(texts, dict) else enumerate(texts)
    with tempfile.TemporaryDirectory(dir=ROOT / "runs") as folder:
        data, out, gone = (pathlib.Path(folder) / name for name in ("data.jsonl", "out.jsonl", "gone.jsonl"))
        with data.open("w") as file:
            file.writelines(json.dumps({"id": name, "text": text}) + "\n" for name, text in named)
        done = subprocess.run([sys.executable, "-c", MEASURED, PROGRAM, "--data", data, "--out", out, "--removed", gone,
                               *flags.split()], capture_output=True, text=True)
        if done.returncode != 0:
            raise SystemExit(f"measure.py: {done.stderr}")
        printed, _, used = done.stdout.strip().rpartition("\n")
        kept, removed = ([json.loads(line) for line in path.open()] if read else [] for path in (out, gone))
        return printed, kept, removed, *map(float, used.split())


def documents():
    """Twenty verses each, of which every fourth begins a paragraph."""
    verses = TEXT.read_text().splitlines()
    return ["\n".join(("\n" if j % 4 == 0 and j else "") + verse for j, verse in enumerate(verses[i:i + 20]))
            for i in range(0, len(verses) - 19, 20)]


def word(draw):
    return "".join(draw.choices("abcdefghijklmnopqrstuvwxyz", k=9))


def edited(draw, text, share):
    """Some words are others."""
    return re.sub(r"\w+", lambda m: word(draw) if draw.random() < share else m[0], text)


def raw_documents(draw, real):
    """The Bible, copies and edited ones of its documents, and 1,000 other texts."""
    bible = documents()
    raw = list(bible)
    for text in draw.sample(bible, 300):
        raw += [text] * draw.choice([1, 1, 1, 5])  # copies
    for text in draw.sample(bible, 300):
        raw.append(edited(draw, text, draw.choice([0.002, 0.005, 0.01])))
    raw += draw.sample(list(real.values()), 1000)
    draw.shuffle(raw)
    return bible, raw


def funnel(draw, real):
    bible, raw = raw_documents(draw, real)
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl", dir=ROOT / "runs") as held_out:
        held_out.writelines(json.dumps({"text": text}) + "\n" for text in draw.sample(bible, 10))
        held_out.flush()
        printed = corpus(raw, f"{ALL_RULES} --dedup near --held-out {held_out.name}")[0]
    return funnel_rows(printed), printed


def real_texts(draw):
    """{name: text}: what Debian's packages bring of documentation, headers, Python and Perl; and the
    Bible."""
    top = pathlib.Path("/usr")
    paths = [path for folder, form in FOLDERS.items() for path in sorted((top / folder).rglob(form))
             if path.is_file() and not path.is_symlink()]
    texts = {}
    for path in draw.sample(paths, min(len(paths), 8000)):
        data = path.read_bytes()
        with contextlib.suppress(UnicodeDecodeError, gzip.BadGzipFile):
            texts[str(path.relative_to(top))] = (gzip.decompress(data) if path.suffix == ".gz" else data).decode()
    texts["the Bible"] = TEXT.read_text()
    return texts | {f"the Bible, part {i}": text for i, text in enumerate(documents())}


def examples(draw, texts):
    """Writes examples.md: what each rule throws away of real texts."""
    found = {}
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl", dir=ROOT / "runs") as held_out:
        held_out.writelines(json.dumps({"text": text}) + "\n" for text in draw.sample(documents(), 20))
        held_out.flush()
        flags = [f"--filter {name} --dedup none" for name in ("gopher", "repetition", "c4", "fineweb")]
        for more in [*flags, f"--dedup near --held-out {held_out.name}"]:
            printed, kept, removed, *_ = corpus(texts, more)
            found |= {row[0]: [] for row in funnel_rows(printed)[1:] if row[0] not in found}
            for line in removed:
                found[line["removed_by"]].append((line["id"], line["text"]))
            for line in kept if DELETED in found and " c4 " in more else []:
                stay = set(line["text"].split("\n"))
                gone = [part for part in texts[line["id"]].split("\n") if part.strip() and part.strip() not in stay]
                found[DELETED].extend((line["id"], part) for part in gone)
    parts = [EXAMPLES.format(texts=len(texts))]
    for rule, all_ in found.items():
        shown = [f"- {name}: `{cut(text)}`" for name, text in sorted(draw.sample(all_, min(10, len(all_))))]
        parts.append("\n\n".join([f"## {rule}", f"{len(all_):,} {'lines' if rule == DELETED else 'texts'}:", "\n".join(shown)]))
    (HERE / "examples.md").write_text("\n\n".join(parts) + "\n")


def cut(text):
    """One line without addresses of people."""
    return re.sub(r"\S+@\S+|[^\x20-\x7e\u00a1-\uffff]|`", "", " ".join(text.split()))[:100].strip() or " "


def funnel_rows(printed):
    """(rule, removed, documents, bytes)"""
    return re.findall(r"(?m)^(\S.*?) +(\d+) +(\d+) +(\d+)$", printed)


def pair(draw, shared, own):
    """Two texts with `shared` common shingles, and `own` that only one has."""
    begin = [word(draw) for _ in range(shared + 4)]
    return [" ".join(begin + [word(draw) for _ in range(own)]) for _ in range(2)]


def curve(draw):
    """[(similarity, candidates of PAIRS pairs)]"""
    points = []
    for s in (0.4, 0.5, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95):
        own = round(60 * (1 / s - 1) / 2)
        _, kept, *_ = corpus([t for _ in range(PAIRS) for t in pair(draw, 60, own)], "--dedup near")
        points.append((60 / (60 + 2 * own), 2 * PAIRS - len(kept)))
    return points


def predicted(s):
    return 1 - (1 - s ** ROWS) ** BANDS


def chart(rows, points):
    figure, axes = pyplot().subplots(1, 2, figsize=(9, 4.2), layout="constrained")
    names, left = [row[0] for row in rows], [int(row[2]) for row in rows]
    axes[0].barh(names[::-1], left[::-1], color="#2f6f9f")
    axes[0].set(xlabel="documents that are left")
    axes[0].tick_params(axis="y", labelsize=7)
    grid = [i / 200 for i in range(201)]
    axes[1].plot(grid, [predicted(s) for s in grid], color="#808890", label=r"$1-(1-s^8)^{14}$")
    axes[1].plot([s for s, _ in points], [n / PAIRS for _, n in points], "o", color="#c2701e", label="measured")
    axes[1].set(xlabel="part of the shingles that two texts share", ylabel="pairs that are candidates")
    axes[1].legend(loc="upper left")
    save(figure, HERE / "funnel.svg")


def shingles(text):
    words = re.findall(r"[a-z]+", text.lower())
    return {tuple(words[i:i + 5]) for i in range(len(words) - 4)}


def recall(draw):
    """Pairs that brute force finds at a similarity of 0.8 or more, and how many of them are found."""
    texts = draw.sample(documents(), 400)
    texts += [edited(draw, text, draw.choice([0.002, 0.01, 0.02, 0.03])) for text in texts[:200]]
    sets = [shingles(text) for text in texts]
    similar = {}
    for i, j in itertools.combinations(range(len(texts)), 2):
        both = len(sets[i] & sets[j])
        similar[i, j] = both / (len(sets[i]) + len(sets[j]) - both)
    _, kept, removed, *_ = corpus(texts, "--dedup near")
    group = {line["id"]: line["survivor"]["id"] for line in removed}
    stays = [line["id"] for line in kept]
    alike = lambda i, j: similar[min(i, j), max(i, j)]
    # The survivor has no row of its own: of what stays it is the one most like who names it.
    group |= {max(stays, key=lambda k: alike(i, k)): name for i, name in group.items()}
    together = lambda i, j: group.get(i, i) == group.get(j, j)
    rows = []
    for low, high in ((0.9, 1.01), (0.8, 0.9), (0.7, 0.8), (0.5, 0.7), (0, 0.5)):
        pairs = [p for p, s in similar.items() if low <= s < high]
        found = sum(together(*p) for p in pairs)
        want = sum(predicted(similar[p]) for p in pairs)
        rows.append([f"{low} to {min(high, 1)}", f"{len(pairs):,}", f"{want:.1f}", f"{found:,}"])
    return table(["similarity", "pairs by brute force", "candidates predicted", "found"], rows)


def random_texts(draw, count, words):
    known = [word(draw)[:draw.randint(2, 9)] for _ in range(5000)]
    return [" ".join(draw.choices(known, k=words)) for _ in range(count)]


def million(draw):
    rows = []
    for count in (10000, 100000, 1000000):
        texts = random_texts(draw, count * 9 // 10, 31)
        texts += texts[:count // 10]
        for flags in ("--dedup exact", "--dedup near"):
            printed, _, _, seconds, peak = corpus(texts, f"{flags} --memory-limit 64MB", read=False)
            in_files, removed = (int(re.search(form, printed)[1]) for form in (r"(\d+) of them in files", r"exact +(\d+)"))
            rows.append([f"{count:,}", f"`{flags}`", f"{removed:,}", f"{seconds:.2f}", f"{1e6 * seconds / count:.1f}",
                         f"{peak / 2 ** 20:,.0f}", f"{in_files / 2 ** 20:,.0f}"])
    return (f"Documents of {sum(map(len, texts)) / len(texts):,.0f} bytes, of which a tenth are copies, one thread, "
            "`--memory-limit 64MB`:\n\n" + table(["documents", "flags", "removed as `exact`", "processor time, s",
                                                 "µs a document", "peak of memory, MiB", "records in files, MiB"], rows))


def measure():
    draw = random.Random(25)
    real = real_texts(draw)
    rows, printed = funnel(draw, real)
    examples(draw, real)
    points = curve(draw)
    chart(rows, points)
    return "\n\n".join([
        "The Bible in documents of twenty verses, with 300 of them copied once or five times, 300 edited, and 1,000 "
        f"other texts, of which [examples.md](examples.md) tells; ten of its documents are held out. `{ALL_RULES} --dedup near --held-out …` prints:",
        "```\n" + printed.strip() + "\n```",
        "![Bars of the documents that each rule leaves; and the share of pairs that are candidates, as a curve of their "
        "similarity with ten measured points on it](funnel.svg)",
        f"Candidates among {PAIRS:,} planted pairs of each similarity $s$, with {BANDS} bands of {ROWS}:",
        table(["s"] + [f"{s:.3f}" for s, _ in points],
              [["predicted"] + [f"{PAIRS * predicted(s):.0f}" for s, _ in points],
               ["measured"] + [str(n) for _, n in points]]),
        "Pairs of 400 documents of the Bible and 200 edited ones, of which brute force computes all similarities. Found "
        "are pairs whose documents are in one component:", recall(draw),
        million(draw),
    ])
