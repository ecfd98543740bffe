"""The calibration plot: do tokens diverge as often as the router says?"""

from __future__ import annotations

from pathlib import Path

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from tokenrouter.router_training.report import Report

INCHES = (9.6, 4.2)
DOTS_PER_INCH = 150


def save(path: Path, report: Report) -> None:
    """Draw predicted and observed rates, and what is found at each share of large tokens."""
    draw(report).savefig(path, dpi=DOTS_PER_INCH, format="png")


def draw(report: Report) -> Figure:
    """Left: calibration, both axes logarithmic. Right: recall over the share of large tokens."""
    figure = Figure(figsize=INCHES, layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2)
    predicted = [each.predicted for each in report.calibration]
    observed = [each.observed for each in report.calibration]
    ends = (min(predicted + observed), 1.0)
    left.plot(ends, ends, ":", color="grey", label="ideal")
    left.plot(predicted, observed, "o-", markersize=4, label="router")
    left.set(xscale="log", yscale="log")
    left.set_xlabel("predicted probability that the token diverges")
    left.set_ylabel("observed share")
    shares = [100 * each.share for each in report.shares]
    right.plot(shares, [100 * each.recall for each in report.shares], "o-", label="router")
    by_entropy = [100 * each.recall_of_entropy for each in report.shares]
    right.plot(shares, by_entropy, "s--", markersize=4, label="entropy")
    right.set(xscale="log")
    right.set_xlabel("tokens of the large model (%)")
    right.set_ylabel("divergent tokens found (%)")
    for axes in (left, right):
        axes.grid(alpha=0.3)
        axes.legend()
    return figure
