"""What a calibration found: made by `run.py`, told by `report.py`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tokenrouter.calibration.bisection import Answer, Point
from tokenrouter.calibration.facts import Facts
from tokenrouter.calibration.findings import Findings
from tokenrouter.calibration.windows import Window
from tokenrouter.throughput_model.parameters import LEAST_GAIN, Prediction, Thresholds
from tokenrouter.throughput_model.planning.outlook import Outlook
from tokenrouter.throughput_model.search.rounds import PLATEAU, noise


@dataclass(frozen=True)
class Choice:
    """Recommended thresholds, and what they gain over thresholds of 1: 0.1 is 10 %."""

    thresholds: Thresholds
    tokens_per_s: float
    gain: float


@dataclass(frozen=True)
class Advice:
    """What to set at one concurrency, beside what was measured there.

    ``predicted``: tokens/s by the thresholds in force; None: they changed meanwhile, or were
    not among those that were planned.
    """

    window: Window
    predicted: float | None
    outlook: Outlook

    @property
    def choice(self) -> Choice:
        """The lowest about as good as the best; thresholds of 1 if that gains too little."""
        best = self.outlook.best
        if best.over_ones < LEAST_GAIN:
            return Choice((1,) * len(best.thresholds), self.outlook.ones, 0.0)
        good = [row for row in self.outlook.rows if _as_good(row.prediction, best.prediction)]
        low = min(good, key=lambda row: (sum(row.thresholds), -row.tokens_per_s))
        return Choice(low.thresholds, low.tokens_per_s, low.over_ones)


def _as_good(one: Prediction, best: Prediction) -> bool:
    tolerated = max(noise(one, best), PLATEAU * best.tokens_per_s)
    return one.tokens_per_s >= best.tokens_per_s - tolerated


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
