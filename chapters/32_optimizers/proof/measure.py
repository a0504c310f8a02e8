"""The measured table of chapter 32: what each optimizer keeps."""

from measure import run, short_text, table

FLAGS = "--model small --batch 8 --steps 2 --threads 1"
OPTIMIZERS = {"adamw": "$8P$", "lion": "$4P$", "adamw8bit": "$(2+8/64)P$", "adafactor": "$4\\sum(R+N)$"}


def states(text):
    rows = []
    for name, formula in OPTIMIZERS.items():
        for ranks in (1, 4):
            if name == "adafactor" and ranks > 1:
                continue
            r = run("32_optimizers", f"{FLAGS} --ranks {ranks} --optimizer {name}", text)
            rows.append([f"`{name}`", ranks, formula if ranks == 1 else f"{formula} / {ranks}",
                         f"{r.memory('Optim', 'predicted'):,}", f"{r.memory('Optim'):,}", f"`{r.hash[-1]}`"])
    return table(["`--optimizer`", "ranks", "Optim", "predicted, bytes", "measured, bytes", "hash"], rows)


def measure():
    return f"`{FLAGS}`, on the first pages of the text:\n\n{states(short_text(8, 256))}"
