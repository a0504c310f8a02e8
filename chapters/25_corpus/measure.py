"""The measured tables and the chart of chapter 25: a funnel of the Bible with junk and duplicates
planted in it, candidates and recall, what duplicates do to held-out loss, and speed."""

import itertools
import json
import pathlib
import random
import re
import resource
import subprocess
import tempfile

from measure import ROOT, TEXT, machine, run, table
from plot import pyplot, save

HERE = pathlib.Path(__file__).resolve().parent
PROGRAM = ROOT / "build/cpu/bin/ch25_corpus"
BANDS, ROWS, PAIRS = 14, 8, 1000
ALL_RULES = "--filter gopher,repetition,c4,fineweb"
TRAIN = "--model tiny --batch 12 --steps 400 --lr 1e-3 --schedule cosine --warmup 100 --clip 1"


def corpus(texts, flags):
    """(what it prints, objects that stay, objects that go, seconds of processor time)"""
    with tempfile.TemporaryDirectory(dir=ROOT / "runs") as folder:
        data, out, gone = (pathlib.Path(folder) / name for name in ("data.jsonl", "out.jsonl", "gone.jsonl"))
        data.write_text("".join(json.dumps({"id": i, "text": text}) + "\n" for i, text in enumerate(texts)))
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run([PROGRAM, "--data", data, "--out", out, "--removed", gone, *flags.split()],
                              capture_output=True, text=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        if done.returncode != 0:
            raise SystemExit(f"measure.py: {done.stderr}")
        kept, removed = ([json.loads(line) for line in open(path)] for path in (out, gone))
        seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        return done.stdout, kept, removed, seconds


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


def junk(draw, bible):
    """Pages as the web has them."""
    words = lambda n: " ".join(draw.choice(bible).split()[k % 90] for k in range(n))
    menu = "\n".join(draw.choice(["Home", "About us", "Contact", "Products", "Sign in", "More…"]) for _ in range(40))
    return draw.choice([
        menu, menu + "\n" + words(60), "- " + "\n- ".join(words(6) for _ in range(30)),
        words(80) + " # # #" * 12, "12 345 67 8.9 " * 40, "short page.", "",
        "\n".join([words(12) + "."] * 8), words(200).replace(" ", "..."), words(70) + "\nLorem ipsum dolor sit.",
        "\n".join(f"if (x == {i}) {{ return the_value_of(x, {i}); }} // and so on to the end." for i in range(40)),
        "\n".join(words(15) + "…" for _ in range(9)), words(150), " ".join(["all of the same words"] * 30),
        "\n".join(words(9) + " uses cookies." for _ in range(12))])


def raw_documents(draw):
    """The Bible, and what a crawl would have beside it."""
    bible = documents()
    raw = list(bible)
    for text in draw.sample(bible, 300):
        raw += [text] * draw.choice([1, 1, 1, 5])  # copies
    for text in draw.sample(bible, 300):
        raw.append(edited(draw, text, draw.choice([0.002, 0.005, 0.01])))
    raw += [junk(draw, bible) for _ in range(400)]
    draw.shuffle(raw)
    return bible, raw


def funnel(draw):
    bible, raw = raw_documents(draw)
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl", dir=ROOT / "runs") as held_out:
        held_out.writelines(json.dumps({"text": text}) + "\n" for text in draw.sample(bible, 10))
        held_out.flush()
        printed, _, removed, _ = corpus(raw, f"{ALL_RULES} --dedup near --held-out {held_out.name}")
    rows = [line.split() for line in printed.splitlines() if re.match(r"\S+ +\d+ +\d+ +\d+$", line)]
    examples = {}
    for line in removed:
        examples.setdefault(line["removed_by"], []).append(line["text"])
    shown = [[f"`{name}`", "<br>".join(f"`{cut(text)}`" for text in examples[name][:2])] for name, *_ in rows[1:]
             if name in examples and examples[name][0].strip()]
    return rows, printed, table(["removed by", "the beginning of two of them"], shown)


def cut(text):
    return " ".join(text.split())[:60].replace("|", "/").replace("`", "'")


def pair(draw, shared, own):
    """Two texts with `shared` common shingles, and `own` that only one has."""
    begin = [word(draw) for _ in range(shared + 4)]
    return [" ".join(begin + [word(draw) for _ in range(own)]) for _ in range(2)]


def curve(draw):
    """[(similarity, candidates of PAIRS pairs)]"""
    points = []
    for s in (0.4, 0.5, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95):
        own = round(60 * (1 / s - 1) / 2)
        _, kept, _, _ = corpus([t for _ in range(PAIRS) for t in pair(draw, 60, own)], "--dedup near")
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
    _, kept, removed, _ = corpus(texts, "--dedup near")
    group = {line["id"]: line["survivor"] for line in removed}
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


def held_out_loss(draw):
    texts = documents()
    held = "\n\n".join(texts[-155:])[-360000:]
    train, few = texts[:-160], texts[:12]
    size = 9 * len(held.encode())
    fill = lambda some: ("\n\n".join(some) * 40).encode()[:size]
    half = train[:500]
    with_copies = half + few * (len(half) // len(few))
    draw.shuffle(with_copies)
    _, kept, _, _ = corpus(with_copies, "--dedup near")
    rows = []
    for name, some in {"500 documents, and 12 of them 42 times": with_copies, "the same after `--dedup near`": [line["text"] for line in kept],
                       f"{len(train):,} documents, each once": train}.items():
        path = ROOT / "runs/copies.txt"
        path.write_bytes(fill(some) + held.encode())
        rows.append([name, f"{run('06_checkpointing', TRAIN, path).report['val_loss']:.3f}"])
    return table(["trained on", "held-out loss"], rows)


def speed(draw):
    words = [word(draw)[:draw.randint(2, 9)] for _ in range(5000)]
    rows = []
    for count in (5000, 40000):
        texts = [" ".join(draw.choices(words, k=310)) for _ in range(count)]
        size = sum(map(len, texts)) / count
        for flags in ("--dedup exact", "--dedup near", f"{ALL_RULES} --dedup none"):
            seconds = corpus(texts, flags)[3]
            rows.append([f"{count:,}", f"{size:,.0f}", f"`{flags}`", f"{seconds:.2f}", f"{count / seconds:,.0f}"])
    return table(["documents", "bytes of one", "flags", "processor time, s", "documents a second and thread"], rows)


def measure():
    draw = random.Random(25)
    rows, printed, examples = funnel(draw)
    points = curve(draw)
    chart(rows, points)
    return "\n\n".join([
        "The Bible in documents of twenty verses, with 300 of them copied once or five times, 300 edited, and 400 "
        f"made-up pages of junk; ten of its documents are held out. `{ALL_RULES} --dedup near --held-out …` prints:",
        "```\n" + printed.strip() + "\n```",
        "![Bars of the documents that each rule leaves; and the share of pairs that are candidates, as a curve of their "
        "similarity with ten measured points on it](funnel.svg)",
        "What the rules throw away (`--removed` writes all of it):", examples,
        f"Candidates among {PAIRS:,} planted pairs of each similarity $s$, with {BANDS} bands of {ROWS}:",
        table(["s"] + [f"{s:.3f}" for s, _ in points],
              [["predicted"] + [f"{PAIRS * predicted(s):.0f}" for s, _ in points],
               ["measured"] + [str(n) for _, n in points]]),
        "Pairs of 400 documents of the Bible and 200 edited ones, of which brute force computes all similarities. Found "
        "are pairs whose documents are in one component:", recall(draw),
        f"What copies do: `ch06_checkpointing {TRAIN}` on as many bytes of three corpora, and the same text held out. "
        "What is shorter is repeated as a whole:", held_out_loss(draw),
        f"Processor time on {machine()}, of random words:", speed(draw),
    ])
