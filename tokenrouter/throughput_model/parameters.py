"""A system of models that cooperate on N requests, as the throughput model sees it.

Made by hand, by `systems.py` for known algorithms, by `parameter_file.py` from YAML, or by
`estimate.py` from what members measured. Solved by `exact.py`, `simulate.py` and `events.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy
from numpy.typing import NDArray

from tokenrouter.errors import ConfigError

Floats = NDArray[numpy.float64]
Thresholds = tuple[int, ...]
"""One for each model, each at least 1: requests that must wait before it launches a batch."""
LEAST_GAIN = 0.02
"""Of other thresholds than 1, as a share: below, waiting is not worth its risk."""
SUM_TOLERANCE = 1e-6
"""How far from one a row of routing probabilities may add up."""


@dataclass(frozen=True, slots=True)
class Latency:
    """Milliseconds of a step: l(b, tokens) = base + per_request * b + per_token * tokens.

    b requests are in the batch; ``tokens`` is what the step feeds, one or more for each.
    ``table`` gives base + per_request * b at some b instead: linear in between, constant
    outside.
    """

    base: float = 0.0
    per_request: float = 0.0
    per_token: float = 0.0
    table: Mapping[int, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        numbers = (self.base, self.per_request, self.per_token, *self.table.values())
        if not all(numpy.isfinite(each) and each >= 0 for each in numbers):
            raise ConfigError(f"latency_ms: times must be finite and not negative, got {self}")
        if any(size < 1 for size in self.table):
            raise ConfigError(f"latency_ms: batch sizes start at 1, got {sorted(self.table)}")
        if self.table and (self.base or self.per_request):
            raise ConfigError("latency_ms: give a table, or base and per_request, not both")
        if not all(self.at(size, size) > 0 for size in (1, *self.table)):
            raise ConfigError("latency_ms: a step must take more than 0 ms, at every batch size")

    def at(self, batch: int, tokens: float) -> float:
        """Milliseconds of a step of ``batch`` requests that feeds ``tokens`` tokens."""
        if self.table:
            sizes = sorted(self.table)
            own = float(numpy.interp(batch, sizes, [self.table[size] for size in sizes]))
        else:
            own = self.base + self.per_request * batch
        return own + self.per_token * tokens


@dataclass(frozen=True, slots=True)
class Model:
    """One of them; ``max_batch``: most requests in one step (None: any number)."""

    name: str
    latency: Latency
    max_batch: int | None = None

    def __post_init__(self) -> None:
        if self.max_batch is not None and self.max_batch < 1:
            raise ConfigError(f"models.{self.name}.max_batch: must be at least 1")


@dataclass(frozen=True, eq=False, slots=True)
class System:
    """The models of a deployment and how requests move between them.

    Requests start in the queue of model 0.

    Args:
        routing: (M, M); row m: where a request goes after a step on m. Rows add up to one.
        committed: (M, M); tokens committed by a step on m whose request goes to k next
            (an expectation: fractions are fine).
        tick_ms: time quantum of the exact chain; None: chosen (`chain.py` says how).

    Raises:
        ConfigError: names the field that is wrong, and the remedy.
    """

    models: tuple[Model, ...]
    routing: Floats
    committed: Floats
    tick_ms: float | None = None

    def __post_init__(self) -> None:
        count = len(self.models)
        if not count:
            raise ConfigError("models: there must be at least one")
        for name in ("routing", "committed"):
            matrix = numpy.array(getattr(self, name), dtype=float)
            if matrix.shape != (count, count):
                raise ConfigError(
                    f"{name}: must have a row and a column for each of the {count} models, "
                    f"has shape {matrix.shape}"
                )
            if not (numpy.isfinite(matrix).all() and (matrix >= 0).all()):
                raise ConfigError(f"{name}: numbers must be finite and not negative")
            matrix.flags.writeable = False
            object.__setattr__(self, name, matrix)
        for model, total in zip(self.models, self.routing.sum(axis=1), strict=True):
            if abs(total - 1.0) > SUM_TOLERANCE:
                raise ConfigError(
                    f"routing: the row of {model.name} adds up to {total:.6g}; it must be 1"
                )
        _check_reachable(self)
        if not self.tokens_per_visit.sum():
            raise ConfigError("committed: no step that happens commits a token")
        if self.tick_ms is not None and not (numpy.isfinite(self.tick_ms) and self.tick_ms > 0):
            raise ConfigError(f"tick_ms: must be more than 0, got {self.tick_ms}")

    @property
    def size(self) -> int:
        """M, the number of models."""
        return len(self.models)

    @property
    def visit_shares(self) -> Floats:
        """(M,): of all steps of a request, the share on each model; adds up to one."""
        count = self.size
        balance = numpy.vstack([self.routing.T - numpy.eye(count), numpy.ones(count)])
        shares = numpy.linalg.lstsq(balance, numpy.append(numpy.zeros(count), 1.0), rcond=None)[0]
        clipped: Floats = numpy.clip(shares, 0.0, None)
        return clipped

    @property
    def tokens_per_visit(self) -> Floats:
        """(M,): tokens that a step on each model commits, on average."""
        tokens: Floats = (self.routing * self.committed).sum(axis=1)
        return tokens

    @property
    def visits_per_token(self) -> Floats:
        """(M,): V_m, steps on each model per committed token."""
        shares = self.visit_shares
        visits: Floats = shares / float(shares @ self.tokens_per_visit)
        return visits

    def limit(self, model: int, concurrency: int) -> int:
        """The largest batch of a model: its own limit, or all requests."""
        own = self.models[model].max_batch
        return concurrency if own is None else min(own, concurrency)

    def latencies(self, model: int, concurrency: int) -> Floats:
        """(B,): milliseconds of a step of 1, 2, ..., B = `limit` requests on a model.

        A request feeds each model every committed token once, 1 / V_m of them a visit; and at
        least one a visit, as where a model drafts tokens that others commit. (Not so where a
        request never comes back and another takes its place: `systems.query_level`.)

        These are means, whatever else waits: with ``per_token`` and three models or more, event
        simulations gave 2 to 6 % fewer tokens/s (`cascade`, escalating 0.3, N = 6).
        """
        latency = self.models[model].latency
        tokens = max(1.0, 1.0 / float(self.visits_per_token[model])) if latency.per_token else 0.0
        sizes = range(1, self.limit(model, concurrency) + 1)
        return numpy.array([latency.at(size, size * tokens) for size in sizes])

    def check(self, concurrency: int, thresholds: Sequence[int]) -> Thresholds:
        """The thresholds, if they are legal for N = ``concurrency`` requests.

        They are feasible, and cannot deadlock, iff sum(theta_m - 1) < N.

        Raises:
            ConfigError: they are not.
        """
        wanted = tuple(int(each) for each in thresholds)
        if concurrency < 1:
            raise ConfigError(f"concurrency: must be at least 1, got {concurrency}")
        if len(wanted) != self.size or min(wanted) < 1:
            raise ConfigError(
                f"thresholds: {list(wanted)} must be {self.size} numbers, one a model, from 1 on"
            )
        for index, (model, threshold) in enumerate(zip(self.models, wanted, strict=True)):
            if threshold > self.limit(index, concurrency):
                raise ConfigError(
                    f"thresholds: {threshold} requests never wait for {model.name}, whose batch "
                    f"takes {self.limit(index, concurrency)} of {concurrency}; lower it"
                )
        if sum(wanted) - self.size >= concurrency:
            raise ConfigError(
                f"thresholds: {list(wanted)} can deadlock {concurrency} requests: the sum of all "
                "theta - 1 must be below their number; lower some"
            )
        return wanted


@dataclass(frozen=True, slots=True)
class Prediction:
    """What a threshold vector gives at one concurrency.

    ``tokens_per_s`` committed tokens a second, with its standard error ``stderr`` (0 if
    exact). ``states`` of the chain (0 if simulated). For each model: ``utilisation``, the
    share of time it computes; ``mean_queue``, requests that wait for it, on average over
    time; ``mean_batch`` requests in a step.
    """

    concurrency: int
    thresholds: Thresholds
    tokens_per_s: float
    method: Literal["exact", "simulated"]
    states: int
    stderr: float
    utilisation: tuple[float, ...]
    mean_queue: tuple[float, ...]
    mean_batch: tuple[float, ...]


def _check_reachable(system: System) -> None:
    """Every model must be reachable from model 0, and lead back to it: one closed class."""
    leads = (numpy.eye(system.size) + (system.routing > 0)) > 0
    for _ in range(system.size):
        leads = (leads.astype(int) @ leads.astype(int)) > 0
    for index, model in enumerate(system.models):
        if not leads[0, index]:
            raise ConfigError(
                f"routing: no request ever reaches {model.name}; leave it out, or route to it"
            )
        if not leads[index, 0]:
            raise ConfigError(
                f"routing: no request that reached {model.name} comes back to "
                f"{system.models[0].name}; it absorbs all of them"
            )
