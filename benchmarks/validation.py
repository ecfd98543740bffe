"""What a validation run measured, what the throughput model says to it, and whether they agree.

Used by `validate_throughput_model.py`. Three predictions, each from less that is assumed:
``nominal`` from the latencies and the routing that the server was started with; ``measured``
from the step latencies of this very run, launch to launch; ``replay`` from these latencies, the
time of a hand-over, and the routing decisions that were recorded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from intervals import Blocks, Estimate, ratio

PREDICTIONS = ("nominal", "measured", "replay")
Z = 1.96
"""Standard errors on either side of a point that hold the truth 95 times in 100."""


@dataclass(frozen=True)
class Cell:
    """One threshold of the large model at N = ``concurrency``: a run of its own.

    ``predicted``: tokens per second by kind of prediction. ``latency_ms``: of each model, the
    mean of a step, launch to launch.
    """

    concurrency: int
    threshold: int
    blocks: Blocks
    latency_ms: tuple[float, ...]
    predicted: Mapping[str, float] = field(default_factory=dict)

    @property
    def measured(self) -> Estimate:
        """Tokens per second."""
        return self.blocks.throughput

    def off(self, kind: str) -> float:
        """Measured over predicted, less one."""
        return self.measured.value / self.predicted[kind] - 1.0


@dataclass(frozen=True)
class Verdict:
    """One criterion of the validation, and whether it was met."""

    what: str
    passed: bool

    def __str__(self) -> str:
        return f"{'PASS' if self.passed else 'FAIL'}  {self.what}"


def within(cells: Sequence[Cell], kind: str, tolerance: float) -> Verdict:
    """Every cell is as close to a kind of prediction as ``tolerance`` (0.05: 5 %)."""
    worst = max(cells, key=lambda cell: abs(cell.off(kind)))
    return Verdict(
        f"within {tolerance:.1%} of the {kind} prediction: {worst.off(kind):+.1%} at worst "
        f"(N = {worst.concurrency}, threshold {worst.threshold})",
        abs(worst.off(kind)) <= tolerance,
    )


def best_threshold(cells: Sequence[Cell], kind: str, concurrency: int, noise: bool) -> Verdict:
    """The best measured threshold is the best predicted one.

    With ``noise``, it will also do if the predicted one was slower by less than `Z` standard
    errors of their ratio, block by block.
    """
    own = [cell for cell in cells if cell.concurrency == concurrency]
    fastest = max(own, key=lambda cell: cell.measured.value)
    wanted = max(own, key=lambda cell: cell.predicted[kind])
    text = f"N = {concurrency}: best threshold measured {fastest.threshold}, {kind} "
    text += f"prediction {wanted.threshold}"
    if fastest is wanted:
        return Verdict(text, True)
    loss = ratio(wanted.blocks, fastest.blocks)
    text += f" (its throughput is {loss.value:.4f} +- {loss.stderr:.4f} of the best)"
    return Verdict(text, noise and loss.value + Z * loss.stderr >= 1.0)


def table(cells: Sequence[Cell]) -> str:
    """A line a cell."""
    kinds = [kind for kind in PREDICTIONS if all(kind in cell.predicted for cell in cells)]
    lines = [
        "  N  threshold  measured tokens/s   steps, ms     "
        + "  ".join(f"{kind:>9}  ratio" for kind in kinds)
    ]
    for cell in cells:
        steps = " / ".join(f"{ms:.2f}" for ms in cell.latency_ms)
        parts = [f"{cell.predicted[kind]:9.1f}  {1.0 + cell.off(kind):5.3f}" for kind in kinds]
        measured = f"{cell.measured.value:.1f} +- {cell.measured.stderr:.1f}"
        lines.append(
            f"{cell.concurrency:3}  {cell.threshold:9}  {measured:>17}   {steps:12}  "
            + "  ".join(parts)
        )
    return "\n".join(lines)


def record(cells: Sequence[Cell], verdicts: Sequence[Verdict]) -> dict[str, Any]:
    """Everything, for a file."""
    return {
        "cells": [
            {
                "concurrency": cell.concurrency,
                "threshold": cell.threshold,
                "tokens_per_s": cell.measured.value,
                "stderr": cell.measured.stderr,
                "latency_ms": list(cell.latency_ms),
                "predicted": dict(cell.predicted),
            }
            for cell in cells
        ],
        "verdicts": [{"what": each.what, "passed": each.passed} for each in verdicts],
    }
