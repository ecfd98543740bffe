"""What a calibration found: made by `run.py`, told by `report.py`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tokenrouter.calibration.bisection import Answer, Point
from tokenrouter.calibration.facts import Facts
from tokenrouter.calibration.findings import Findings
from tokenrouter.calibration.windows import Window
from tokenrouter.throughput_model.planning.outlook import Outlook


@dataclass(frozen=True)
class Advice:
    """The best thresholds at one concurrency, beside what was measured there.

    ``predicted``: tokens/s by the thresholds in force; None: they changed meanwhile.
    """

    window: Window
    predicted: float | None
    outlook: Outlook


@dataclass(frozen=True)
class Shares:
    """The router threshold for each wanted share, and everything that was tried."""

    answers: Sequence[Answer]
    points: Sequence[Point]


@dataclass(frozen=True)
class Result:
    """All that was found; parts that nobody asked for are None.

    ``threshold``: router threshold that was measured at; None: the deployment's.
    """

    facts: Facts
    prompts: int
    threshold: float | None
    findings: Findings | None
    advice: Sequence[Advice]
    shares: Shares | None
    wrote: Path | None
