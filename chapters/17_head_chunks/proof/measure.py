"""The measured tables of chapter 17: bytes of logits in chunks."""

from measure import both, run, short_text, table

CHAPTER = "17_head_chunks"
# A vocabulary beside which two blocks are small. A batch has 8 C tokens.
MODEL = "--model gpt2-124m --layers 2 --channels 256 --heads 4 --seq-len 128 --batch 16"
CHUNKS = [16, 8, 4, 2, 1]


def chunks_table(precision):
    rows = []
    text = short_text(16, 128)
    for chunk in CHUNKS:
        r = run(CHAPTER, f"{MODEL} --steps 1 --precision {precision} --head-chunk {chunk}", text)
        names = ("Activation", "Workspace")
        sums = [sum(r.memory(name, which) for name in names) for which in ("predicted", "measured")]
        rows.append([chunk, *(r.both(name) for name in names), both(*sums), f"`{r.hash[-1]}`"])
    return table(["sequences in a chunk", "Activation",
                  "Workspace", "both", "hash of the weights after a step"],
                 rows)


def measure():
    return "\n\n".join([
        f"`{MODEL}`, one step, peak bytes predicted and measured (equal where one number stands). "
        "FP32:",
        chunks_table("fp32"),
        "and `--precision bf16`:",
        chunks_table("bf16"),
    ])
