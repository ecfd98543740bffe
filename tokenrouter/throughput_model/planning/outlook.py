"""What a plan says: threshold vectors with what each gives, and the best one, by concurrency.

Made by `planning.py`; told by `report.py` and `plot.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

from tokenrouter.throughput_model.parameters import Prediction, System, Thresholds


@dataclass(frozen=True, slots=True)
class Tail:
    """How unevenly tokens come, by an event simulation; a gap is between tokens of one request.

    ``itl_p50_ms``, ``itl_p99_ms``: half and 99 % of the gaps are within so many milliseconds.
    ``wait_ms``: of each model, the mean time that a request waits for it. ``expired``:
    launches a second that only the longest wait caused.
    """

    itl_p50_ms: float
    itl_p99_ms: float
    wait_ms: tuple[float, ...]
    expired: float


@dataclass(frozen=True, slots=True)
class Row:
    """A threshold vector: its throughput, its tail, and how it compares.

    ``of_bound``: share of the operational bound. ``over_ones``, ``over_lockstep``: gain in
    throughput over thresholds of 1, and over a first model that waits for everyone; 0.1 is 10 %.
    """

    prediction: Prediction
    tail: Tail
    of_bound: float
    over_ones: float
    over_lockstep: float

    @property
    def thresholds(self) -> Thresholds:
        """One for each model."""
        return self.prediction.thresholds

    @property
    def tokens_per_s(self) -> float:
        """Committed tokens a second."""
        return self.prediction.tokens_per_s


@dataclass(frozen=True, slots=True)
class Outlook:
    """At one concurrency: ``rows``, highest throughput first, and the ``best`` of them.

    ``feasible``: how many vectors there are, ``rows`` or more. ``met``: whether the best one
    keeps the objective's limit. ``bound``: tokens/s that no thresholds can exceed;
    ``bottleneck``: the model that computes all the time there (None: no request waits there).
    ``ones``, ``lockstep``: tokens/s of these vectors, which may be among the rows or not.
    """

    concurrency: int
    rows: tuple[Row, ...]
    best: Row
    met: bool
    feasible: int
    bound: float
    bottleneck: int | None
    ones: float
    lockstep: float


@dataclass(frozen=True, slots=True)
class Case:
    """If the file is wrong in this way (``what``): the best vector then, and the plan's.

    ``regret``: share of the best one's throughput that keeping the plan's vector loses (negative
    if the best one has to be slower to meet the objective).
    """

    concurrency: int
    what: str
    best: Prediction
    kept: Prediction
    regret: float
    kept_itl_p99_ms: float


def ones(system: System) -> Thresholds:
    """Thresholds of 1: whatever waits is launched."""
    return (1,) * system.size


def lockstep(system: System, concurrency: int) -> Thresholds:
    """The first model waits for everyone, as far as its batches go: models take turns."""
    return (system.limit(0, concurrency), *ones(system)[1:])
