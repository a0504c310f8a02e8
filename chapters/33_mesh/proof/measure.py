"""The measured tables of chapter 33: bytes by axis, and the same hash, of meshes of 16 ranks."""

from measure import both, run, short_text, table

PARENT, CHAPTER = "06_checkpointing", "33_mesh"
MODEL = ("--model gpt2-124m --vocab 256 --layers 4 --channels 64 --heads 8 --seq-len 512 --batch 8 --steps 2 "
         "--threads 1")
AXES = ("tp", "cp", "dp", "replicas", "pp")
STATES = ("Param", "Grad", "Optim")
# tp, cp, replicas, pp; shards are what is left
MESHES = ((2, 2, 2, 2), (2, 2, 2, 1), (1, 8, 1, 2), (4, 1, 1, 4))


def measure():
    text = short_text(batch=8, seq_len=512)
    alone = run(PARENT, MODEL, text)
    rows = [["06, one rank", f"{sum(alone.memory(c) for c in STATES):,}", *("" for _ in AXES), f"`{alone.hash[-1]}`"]]
    for tp, cp, replicas, pp in MESHES:
        r = run(CHAPTER, f"{MODEL} --micro-batch 1 --tp {tp} --cp {cp} --replicas {replicas} --pp {pp} --ranks 16", text)
        assert r.hash == alone.hash, "another run than that of 06"
        states = both(*(sum(r.memory(c, w) for c in STATES) for w in ("predicted", "measured")))
        shards = 16 // (tp * cp * replicas * pp)
        rows.append([f"{tp} x {cp} x {shards} x {replicas} x {pp}", states,
                     *(both(**r.report["extra"]["traffic"][0][axis]) for axis in AXES), f"`{r.hash[-1]}`"])
    return "\n\n".join([
        f"`{MODEL} --micro-batch 1 --ranks 16`, attention by gather. Bytes of weights, gradients and states on rank 0, "
        "and bytes that it sends of activations, gradients and weights in a step; predicted and measured alike. The "
        "mesh is tensor x context x shards x replicas x pipeline, and `dp` has what (context, shard) sends.",
        table(["mesh", "states", *AXES, "hash"], rows)])
