"""The measured tables of chapter 01: memory to the byte, speed, and three kinds of SGD."""

import math

from measure import memory_table, run, table

TINY = "--model tiny --batch 12"
FORMULAS = {
    "Param": "$4P$",
    "Grad": "$4P$",
    "Optim": "$4P$ with momentum",
    "Activation": "$4BT\\ (L(16C+NH+4)+2C+2+V_p)+8BT+4B$",
    "Workspace": "$4BT\\cdot12C$ + 96 + scratch of the kernels",
}


def measure():
    kinds = {
        "SGD": f"{TINY} --steps 500 --lr 0.1",
        "momentum 0.9": f"{TINY} --steps 500 --lr 0.1 --momentum 0.9",
        "Nesterov 0.9": f"{TINY} --steps 500 --lr 0.1 --momentum 0.9 --nesterov",
    }
    runs = {name: run("01_sgd", flags) for name, flags in kinds.items()}
    losses = [[name, f"{r.report['final_loss']:.3f}", f"{r.report['val_loss']:.3f}",
               f"{r.memory('Optim'):,}"] for name, r in runs.items()]

    r = runs["momentum 0.9"]
    L, C, T, NH, V = 4, 128, 64, 4, 256
    flops = 72 * L * C**2 + 6 * V * C + L * (T + 1) * (14 * C + 11 * NH) // 2
    counted = run("06_checkpointing", f"{TINY} --steps 1").report["extra"]["recompute"]["flops"]
    speed = r.report["tokens_per_second"]
    facts = [
        ["loss of step 0", f"$\\ln 256$ = {math.log(256):.4f}", f"{r.loss[0]:.4f}"],
        ["FLOPs a token, counted by the program of chapter 06",
         f"$72LC^2+6V_pC+L\\ \\tfrac{{T+1}}{{2}}(14C+11NH)$ = {flops:,}",
         f"{counted // (12 * T):,}"],
        ["tokens/s", "", f"{speed:,.0f}"],
        ["FLOPs a token times tokens/s", "", f"{speed * flops / 1e9:.0f} GFLOP/s"],
        ["median step", "", f"{r.report['step_ms_median']:.1f} ms"],
    ]
    return "\n\n".join([
        f"Memory of `{r.command}`:",
        memory_table(r, FORMULAS),
        "The same run, predicted and measured:",
        table(["", "predicted", "measured"], facts),
        "500 steps at a learning rate of 0.1:",
        table(["", "loss of the last batch", "validation loss", "Optim, bytes"], losses),
    ])
