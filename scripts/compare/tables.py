"""The figures of the page as CSV files, for spreadsheets and plots of one's own."""

import csv

from runs import bytes_of, operations


def runs_table(runs):
    yield ["row", "chapter", "title", "ranks", "tp", "cp", "dp", "pp", "threads", "micro_batch",
           "step_ms_median", "step_ms_least", "step_ms_most", "speed_to_06", "peak_bytes",
           "peak_bytes_without_workspace", "state_bytes", "sent_bytes_per_step",
           "bubble_theory", "bubble_measured", "final_loss", "val_loss", "same_bits",
           "first_difference", "command"]
    for run in runs:
        report, layout = run.report, run.report["layout"]
        bubble = (run.pipeline or {}).get("bubble", {})
        yield [run.row.key, run.row.chapter, run.row.title,
               *(layout[name] for name in ("ranks", "tp", "cp", "dp", "pp", "threads", "micro_batch")),
               run.ms, min(run.times), max(run.times), f"{run.speed:.4f}", run.peak,
               run.without_workspace, run.states, round(run.sent),
               bubble.get("theory", ""), bubble.get("measured", ""), report["final_loss"],
               report["val_loss"], run.verdict == "same", run.difference or "", run.command]


def memory_table(runs):
    yield ["row", "rank", "category", "predicted_bytes", "measured_bytes"]
    for run in runs:
        for rank in run.report["memory"]:
            predicted = bytes_of(rank, "predicted")
            for category, measured in bytes_of(rank).items():
                yield [run.row.key, rank["rank"], category, predicted[category], measured]


def traffic_table(runs):
    yield ["row", "rank", "operation", "bytes_per_step"]
    for run in runs:
        for rank in run.traffic:
            for operation, sent in operations(rank).items():
                yield [run.row.key, rank["rank"], operation, sent]


def loss_table(runs):
    yield ["step", *(run.row.key for run in runs)]
    for step, values in enumerate(zip(*(run.losses for run in runs))):
        yield [step, *(f"{value:.9g}" for value in values)]


def pipeline_table(runs):
    yield ["row", "stage", "kind", "micro", "chunk", "begin_ms", "end_ms"]
    for run in runs:
        for stage, actions in enumerate((run.pipeline or {}).get("timeline", [])):
            for action in actions:
                yield [run.row.key, stage, *action]


def plans_table(plans):
    yield ["row", "chapter", "title", "tp", "cp", "dp", "pp", "zero", "fits", "peak_bytes",
           "peak_bytes_without_workspace", "state_bytes", "step_seconds", "mfu", "command"]
    for plan in plans:
        yield [plan.row.key, plan.row.chapter, plan.row.title,
               *(plan.layout[name] for name in ("tp", "cp", "dp", "pp", "zero")), plan.fits, plan.peak,
               plan.without_workspace, plan.states, plan.seconds, plan.layout["mfu"], plan.command]


TABLES = {"runs": runs_table, "memory": memory_table, "traffic": traffic_table,
          "loss": loss_table, "pipeline": pipeline_table, "plans": plans_table}


def write_tables(folder, runs, plans):
    """One file a table: FOLDER/runs.csv, ..."""
    for name, table in TABLES.items():
        with open(folder / f"{name}.csv", "w", newline="", encoding="utf-8") as file:
            csv.writer(file, lineterminator="\n").writerows(table(plans if name == "plans" else runs))
