#!/usr/bin/env python3
"""One table from the reports of several runs: scripts/summary.py runs/demo/*.json

Loss in nats per token, memory as the peak bytes of rank 0 by category, in MiB.
"""

import json
import sys

CATEGORIES = ["Param", "Master", "Grad", "Optim", "Activation", "Workspace", "Comm"]
MIB = 1024 * 1024


def memory_of(report):
    """Category -> {"predicted": bytes, "measured": bytes} of rank 0."""
    return {name: report["memory"][0].get(name) for name in CATEGORIES}


def loss(value):
    """A loss that is not finite, or of no step, is null in a report."""
    return "none" if value is None else f"{value:.3f}"


def rows(reports):
    """The table as lists of cells, header first; categories that no run uses are left out."""
    used = [
        name
        for name in CATEGORIES
        if any((memory_of(r)[name] or {}).get("measured") for r in reports)
    ]
    yield ["chapter", "ranks", "train", "valid", "tokens/s", "ms/step", *used, "MiB"]
    for report in reports:
        memory = memory_of(report)
        peaks = [(memory[name] or {}).get("measured", 0) / MIB for name in used]
        yield [
            report["chapter"],
            str(report["layout"]["ranks"]),
            loss(report["final_loss"]),
            loss(report["val_loss"]),
            f"{report['tokens_per_second']:,.0f}",
            f"{report['step_ms_median']:.1f}",
            *(f"{peak:.2f}" for peak in peaks),
            f"{sum(peaks):.2f}",
        ]


def surprises(report):
    """Categories whose measured peak is not the predicted one."""
    for name, bytes_ in memory_of(report).items():
        if bytes_ and bytes_["predicted"] != bytes_["measured"]:
            yield (
                f"{report['chapter']}: {name} predicted {bytes_['predicted']:,} bytes, "
                f"measured {bytes_['measured']:,}"
            )


def main(paths):
    if not paths:
        print("summary.py: usage: scripts/summary.py REPORT.json...", file=sys.stderr)
        return 2
    reports = []
    try:
        for path in paths:
            with open(path, encoding="utf-8") as file:
                reports.append(json.load(file))
            list(rows(reports[-1:]))  # a file that is no report is named
    except (OSError, ValueError, KeyError, IndexError, TypeError) as error:
        print(f"summary.py: {path} is no report: {error!r}", file=sys.stderr)
        return 2
    lines = list(rows(reports))
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    for line in lines:
        numbers = (cell.rjust(width) for cell, width in zip(line[1:], widths[1:]))
        print(line[0].ljust(widths[0]), *numbers, sep="  ")
    differences = [text for report in reports for text in surprises(report)]
    print()
    print("\n".join(differences) or "Memory: measured equals predicted, to the byte.")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
