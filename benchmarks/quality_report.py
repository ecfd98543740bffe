"""The table and the picture of routing quality."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from quality_claims import KEPT, Curves
from quality_methods import LARGE, SMALL
from quality_points import Point
from quality_statistics import Resampled, interval

Delays = Mapping[tuple[str, float | None], Mapping[str, float]]
"""`quality_runs.streamed`, by method and threshold."""
COLOURS = [f"tab:{name}" for name in ("blue", "orange", "green", "red", "purple", "brown")] + [
    *("black", "teal", "gold", "hotpink", "navy", "limegreen", "grey", "darkcyan", "tomato"),
    *("slateblue", "olive", "deepskyblue", "maroon", "violet", "sienna", "darkorange"),
    *("darkgreen", "crimson", "indigo", "dimgrey"),
]
MARKERS = "osv^D*P"
WIDEST = 21.0
"""Share of large tokens up to which is shown, in per cent."""
HEADER = (
    "| method | threshold | problems | share of large tokens | exact | large passes a token "
    "| small passes a token | tokens/s | first chunk, ms | tokens a chunk, longest |"
)


def table(curves: Curves, delays: Delays) -> str:
    """A row for each point, with the 95 % interval of its accuracy."""
    lines = [HEADER, "|---" * (HEADER.count("|") - 1) + "|"]
    lines += [
        _row(point, delays.get((point.method, point.threshold)))
        for name, points in curves.items()
        for point in sorted(points, key=lambda each: each.share)
        if point.method == name
    ]
    return "\n".join(lines)


def _row(point: Point, delay: Mapping[str, float] | None) -> str:
    exact = interval(Resampled(len(point.exact)).accuracy(point))
    cells = [
        point.method,
        "" if point.threshold is None else f"{point.threshold:.4g}",
        str(len(point.exact)),
        f"{100 * point.share:.2f} %",
        f"{exact.value:.3f} ({exact.low:.3f} to {exact.high:.3f})",
    ]
    if point.seconds:
        cells += [f"{point.passes_per_token(name):.3f}" for name in ("large", "small")]
        cells.append(f"{point.throughput:.0f}")
    else:
        cells += [""] * 3
    if delay is None:
        cells += [""] * 2
    else:
        cells.append(f"{delay['first_ms']:.1f}")
        cells.append(f"{delay['chunk_tokens']:.2f}, {delay['longest_chunk']:.1f}")
    return f"| {' | '.join(cells)} |"


def plot(curves: Curves, target: Path) -> None:
    """Accuracy over the share of large tokens; dashed: computed, not served."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.4, 4.6), layout="constrained")
    axes = figure.subplots()
    (small,), (large,) = curves[SMALL.name], curves[LARGE.name]
    routed = [each for each in curves.items() if each[0] not in (SMALL.name, LARGE.name)]
    for number, (name, points) in enumerate(routed):
        ordered = sorted(points, key=lambda each: each.share)
        if not ordered[0].seconds:
            ordered.insert(0, small)
        shares = [100 * each.share for each in ordered]
        line = {"marker": MARKERS[number % len(MARKERS)]} if points[0].seconds else {"ls": "--"}
        colour = COLOURS[number % len(COLOURS)]
        accuracies = [each.accuracy for each in ordered]
        axes.plot(shares, accuracies, color=colour, markersize=4, label=name, **line)
    axes.axhline(large.accuracy, color="black", linewidth=0.8)
    axes.axhline(KEPT * large.accuracy, color="black", linewidth=0.8, linestyle=":")
    axes.axhline(small.accuracy, color="grey", linewidth=0.8)
    axes.set_xlim(0, WIDEST)
    axes.set_xlabel("share of tokens by the large model, %")
    axes.set_ylabel("answers exact")
    axes.set_title(
        f"lines: large alone, {KEPT:.0%} of it (dotted), small alone; dashed: computed", size=8
    )
    figure.legend(fontsize=7, loc="outside right center")
    figure.savefig(target, dpi=150)
