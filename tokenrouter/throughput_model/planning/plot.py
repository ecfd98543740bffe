"""The plan as a picture: throughput over the second threshold, or over concurrency."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from tokenrouter.errors import ConfigError
from tokenrouter.throughput_model.parameters import System
from tokenrouter.throughput_model.planning.outlook import Outlook, Row

INCHES = (6.4, 4.2)
DOTS_PER_INCH = 150
MARGIN = 0.08
"""Of the axes, around what is drawn: room for half a star."""
COLUMNS = 4
"""Of the legend, which stands above the axes, where no curve is."""
LABELS = 12
"""Points with their vectors written beside them; of more, the texts would overlap."""


def check(path: Path) -> None:
    """Find out whether a picture can be written to ``path``, before there is one.

    Raises:
        ConfigError: its kind is unknown, or its folder is not there.
    """
    kinds = FigureCanvasAgg(Figure()).get_supported_filetypes()
    if path.suffix.removeprefix(".").lower() not in kinds:
        raise ConfigError(f"--plot: {path}: must end in one of {', '.join(sorted(kinds))}")
    if not path.parent.is_dir():
        raise ConfigError(f"--plot: {path.parent}: no such folder; make it, or name another")


def save(path: Path, system: System, outlooks: Sequence[Outlook]) -> None:
    """Draw the plan and write it to ``path``, whose ending says which kind of file.

    Raises:
        ConfigError: it cannot be written.
    """
    figure = draw(system, outlooks)
    try:
        figure.savefig(path, dpi=DOTS_PER_INCH)
    except OSError as error:
        raise ConfigError(f"--plot: {path}: cannot be written: {error.strerror}") from error


def draw(system: System, outlooks: Sequence[Outlook]) -> Figure:
    """For two models, throughput over the second's threshold; for others, over concurrency."""
    figure = Figure(figsize=INCHES, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    curves = [_curve(outlook) for outlook in outlooks] if system.size == 2 else []
    if max(map(len, curves), default=0) > 1:
        _over_threshold(axes, system, outlooks, curves)
    else:
        _over_concurrency(axes, outlooks)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_ylabel("tokens per second")
    axes.margins(x=MARGIN)
    axes.set_ylim(0, (1 + MARGIN) * axes.dataLim.y1)
    axes.grid(alpha=0.3)
    figure.legend(loc="outside upper center", ncols=COLUMNS, fontsize="small", frameon=False)
    return figure


def _curve(outlook: Outlook) -> list[Row]:
    """The rows that differ from the best one in the second threshold only."""
    first = outlook.best.thresholds[0]
    rows = [row for row in outlook.rows if row.thresholds[0] == first]
    return sorted(rows, key=lambda row: row.thresholds)


def _over_threshold(
    axes: Axes, system: System, outlooks: Sequence[Outlook], curves: Sequence[Sequence[Row]]
) -> None:
    for outlook, rows in zip(outlooks, curves, strict=True):
        first = outlook.best.thresholds[0]
        line = axes.errorbar(
            [row.thresholds[1] for row in rows],
            [row.tokens_per_s for row in rows],
            yerr=[row.prediction.stderr for row in rows],
            marker="o",
            markersize=3,
            label=f"{outlook.concurrency} at once"
            + ("" if first == 1 else f", {first} for {system.models[0].name}"),
        )
        best = (outlook.best.thresholds[1], outlook.best.tokens_per_s)
        axes.plot(*best, marker="*", markersize=12, color=line[0].get_color())
    axes.set_xlabel(f"threshold of {system.models[1].name}")


def _over_concurrency(axes: Axes, outlooks: Sequence[Outlook]) -> None:
    requests = [outlook.concurrency for outlook in outlooks]
    best = [outlook.best.tokens_per_s for outlook in outlooks]
    curves = {
        "bound": (":", [outlook.bound for outlook in outlooks]),
        "lockstep": ("-", [outlook.lockstep for outlook in outlooks]),
        "thresholds of 1": ("--", [outlook.ones for outlook in outlooks]),
        "best thresholds": ("-", best),  # last: on top of the others
    }
    for number, (label, (style, values)) in enumerate(curves.items()):
        if label == "thresholds of 1":  # wider: seen behind what it coincides with
            axes.plot(requests, values, style, color=f"C{number}", linewidth=4, label=label)
        else:
            axes.plot(
                requests, values, style, color=f"C{number}", marker="o", markersize=3, label=label
            )
    for x, y, outlook in list(zip(requests, best, outlooks, strict=True))[:LABELS]:
        axes.annotate(
            ",".join(map(str, outlook.best.thresholds)),
            (x, y),
            xytext=(5, -5),
            textcoords="offset points",
            verticalalignment="top",
            fontsize="small",
        )
    axes.set_xlabel("requests at once")
