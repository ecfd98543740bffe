"""Measured points with their intervals over predicted curves, as the paper draws them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from validation import Cell, Z

MEASURED = "measured"
COLOURS = ("tab:blue", "tab:orange", "tab:green", "tab:red", "tab:purple")


def plot(cells: Sequence[Cell], kind: str, target: Path) -> None:
    """A colour for each concurrency; dashed: the ``kind`` prediction, a ring at its best.

    Dotted: what is predicted from the step latencies of the run, where that is another one.
    """
    from matplotlib.figure import Figure

    dotted = kind != MEASURED and all(MEASURED in cell.predicted for cell in cells)
    figure = Figure(figsize=(6.4, 4.4), layout="constrained")
    axes = figure.subplots()
    for number, concurrency in enumerate(sorted({cell.concurrency for cell in cells})):
        own = [cell for cell in cells if cell.concurrency == concurrency]
        colour = COLOURS[number % len(COLOURS)]
        thresholds = [cell.threshold for cell in own]
        predicted = [cell.predicted[kind] for cell in own]
        axes.plot(thresholds, predicted, "--", color=colour)
        if dotted:
            axes.plot(thresholds, [cell.predicted[MEASURED] for cell in own], ":", color=colour)
        axes.errorbar(
            thresholds,
            [cell.measured.value for cell in own],
            yerr=[Z * cell.measured.stderr for cell in own],
            fmt="o", capsize=3, color=colour, label=f"N = {concurrency}",
        )  # fmt: skip
        best = max(own, key=lambda cell: cell.predicted[kind])
        axes.plot(
            best.threshold, best.predicted[kind], "o",
            markersize=13, markerfacecolor="none", markeredgecolor=colour,
        )  # fmt: skip
    axes.set_xlabel("threshold of the large model (small: 1)")
    axes.set_ylabel("tokens/s")
    axes.set_xticks(sorted({cell.threshold for cell in cells}))
    title = f"points: measured, 95 %; dashed: {kind} prediction, its best ringed"
    if dotted:
        title += "; dotted: at measured latencies"
    axes.set_title(title, size=8)
    axes.legend()
    figure.savefig(target, dpi=150)
