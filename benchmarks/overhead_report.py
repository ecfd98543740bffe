"""What `overhead.py` measured, as a table and as a plot."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

Rows = Sequence[Mapping[str, Any]]
WANTED = 0.95


def ratios(rows: Rows, name: str, reference: str, concurrency: int, stream: bool) -> list[float]:
    """Speed of ``name`` over the reference's, round by round."""

    def speeds(contestant: str) -> dict[int, float]:
        return {
            row["round"]: row["tokens_per_s"]
            for row in rows
            if (row["contestant"], row["concurrency"], row["stream"])
            == (contestant, concurrency, stream)
        }

    ours, theirs = speeds(name), speeds(reference)
    return [ours[number] / theirs[number] for number in sorted(ours)]


def summary(rows: Rows, reference: str) -> str:
    """One line per setting and contestant: speed, ratio with its spread, CPU by process."""
    lines = []
    names = list(dict.fromkeys(row["contestant"] for row in rows))
    names.sort(key=lambda name: name != reference)
    for stream in (False, True):
        for concurrency in sorted({row["concurrency"] for row in rows}):
            for name in names:
                mine = [
                    row
                    for row in rows
                    if (row["contestant"], row["concurrency"], row["stream"])
                    == (name, concurrency, stream)
                ]
                speed = statistics.median(row["tokens_per_s"] for row in mine)
                ratio = ratios(rows, name, reference, concurrency, stream)
                cpu = _cpu(mine)
                lines.append(
                    f"  {'stream' if stream else 'whole '} {concurrency:3d} {name:13s} "
                    f"{speed:7.1f} tokens/s, ratio {statistics.median(ratio):.3f} "
                    f"({min(ratio):.3f}..{max(ratio):.3f}), CPU ms a token "
                    f"{sum(cpu.values()):.3f}: "
                    + ", ".join(f"{title} {ms:.3f}" for title, ms in cpu.items() if ms >= 0.001)
                )
    return "\n".join(lines)


def _cpu(rows: Rows) -> dict[str, float]:
    titles = dict.fromkeys(title for row in rows for title in row["cpu_ms_per_token"])
    return {
        title: statistics.median(row["cpu_ms_per_token"].get(title, 0.0) for row in rows)
        for title in titles
    }


def plot(models: Mapping[str, Rows], reference: str, path: Path) -> None:
    """Ratios by concurrency, one panel per model and way of answering; a dot per round."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    figure, panels = pyplot.subplots(
        len(models), 2, figsize=(9, 3.4 * len(models)), squeeze=False, sharey=True
    )
    for line, (model, rows) in zip(panels, models.items(), strict=True):
        for panel, stream in zip(line, (False, True), strict=True):
            _panel(panel, rows, reference, stream)
            panel.set_title(f"{model} model, {'streamed' if stream else 'whole answers'}")
    panels[0][0].legend(fontsize="small")
    figure.supxlabel("concurrent requests")
    figure.supylabel(f"decode speed / {reference} SGLang, no overlap")
    figure.tight_layout()
    figure.savefig(path, dpi=120)


def _panel(panel: Any, rows: Rows, reference: str, stream: bool) -> None:
    concurrencies = sorted({row["concurrency"] for row in rows})
    names = [name for name in dict.fromkeys(row["contestant"] for row in rows) if name != reference]
    for shift, name in enumerate(sorted(names)):
        by_setting = [ratios(rows, name, reference, each, stream) for each in concurrencies]
        at = [i + 0.12 * (shift - 1) for i in range(len(concurrencies))]
        (line,) = panel.plot(at, [statistics.median(each) for each in by_setting], label=name)
        for x, values in zip(at, by_setting, strict=True):
            panel.plot([x] * len(values), values, "o", color=line.get_color(), ms=3, alpha=0.6)
    panel.axhline(1.0, color="grey", lw=0.8)
    panel.axhline(WANTED, color="grey", lw=0.8, ls=":")
    panel.set_xticks(range(len(concurrencies)), [str(each) for each in concurrencies])
