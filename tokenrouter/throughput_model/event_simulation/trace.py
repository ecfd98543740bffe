"""What an event simulation (`events.py`) saw, and how sure it is of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy

from tokenrouter.throughput_model.event_simulation.event_state import BINS_PER_E, Ints, Sums
from tokenrouter.throughput_model.parameters import Floats, System, Thresholds


@dataclass(frozen=True, eq=False, slots=True)
class Trace:
    """What happened in a simulation after its warm-up.

    ``tokens_per_s`` committed, its standard error ``stderr`` by batch means, and the ``windows``
    (W,) they come from; ``hops``: (W, M, M) steps on m in each that led to k. ``tokens``: (N,) of
    each request. Of each model, as in `Prediction`: ``utilisation``, ``mean_queue``,
    ``mean_batch``; and ``mean_wait_ms`` in its queue, of those it launched; ``expired_waits``:
    launches that only the longest wait caused. ``laps``: how often the busiest tape was repeated;
    ``stderr`` knows nothing of that: keep it at 0 where it matters. ``gaps``: tokens by the
    logarithm of the time since the one before, for `gap_ms`.
    """

    thresholds: Thresholds
    tokens_per_s: float
    stderr: float
    windows: Floats
    hops: Ints
    tokens: Floats
    utilisation: tuple[float, ...]
    mean_queue: tuple[float, ...]
    mean_batch: tuple[float, ...]
    mean_wait_ms: tuple[float, ...]
    expired_waits: tuple[int, ...]
    laps: int
    gaps: Ints
    tick_ms: float

    def gap_ms(self, quantile: float) -> float:
        """A quantile of the time between successive tokens of a request, to 0.3 %.

        Tokens that are committed together have gap 0, but for the first of them. NaN: too little
        happened for any gap.
        """
        total = int(self.gaps.sum())
        if not total:
            return float("nan")
        index = int(numpy.searchsorted(self.gaps.cumsum(), max(quantile * total, 1.0)))
        return self.tick_ms * float(numpy.exp((index - 0.5) / BINS_PER_E)) if index else 0.0

    @property
    def itl_p50_ms(self) -> float:
        """Median gap between tokens."""
        return self.gap_ms(0.5)

    @property
    def itl_p99_ms(self) -> float:
        """Gap that 1 % of the tokens exceed."""
        return self.gap_ms(0.99)

    def expected(self, system: System) -> tuple[float, float]:
        """Tokens/s, and the standard error, had `draw` made its decisions in due proportion.

        How often steps on m led to k, less ``routing[m, k]`` times the steps on m, has mean zero
        in any window, whatever the thresholds (Wald: a step is decided after it began). So these
        numbers are control variates: the regression of tokens on them, at zero, has the mean of
        ``tokens_per_s`` and a smaller error (Lavenberg and Welch, Management Science 27, 1981).
        With too many of them for the windows it is ``tokens_per_s`` itself.
        """
        surplus = self.hops - self.hops.sum(axis=2, keepdims=True) * system.routing
        columns = surplus.reshape(len(surplus), -1)[:, (system.routing > 0).ravel()]
        if columns.shape[1] > len(columns) / 3:
            return self.tokens_per_s, self.stderr
        controls = numpy.column_stack([numpy.ones(len(columns)), columns])
        inverse = numpy.linalg.pinv(controls.T @ controls, hermitian=True, rcond=1e-10)
        fit = inverse @ controls.T @ self.windows
        freedom = len(controls) - int(numpy.linalg.matrix_rank(controls))
        variance = float(((self.windows - controls @ fit) ** 2).sum()) / freedom * inverse[0, 0]
        return float(fit[0]), float(numpy.sqrt(variance))


def trace_of(thresholds: Thresholds, sums: Sums, laps: int, tick: float) -> Trace:
    """The trace of a run with ticks of ``tick`` ms."""
    windows = sums.windows / (sums.width * tick) * 1e3
    ticks = sums.width * len(windows)
    return Trace(
        thresholds=thresholds,
        tokens_per_s=float(windows.mean()),
        stderr=_stderr(windows),
        windows=windows,
        hops=sums.hops,
        tokens=sums.tokens,
        utilisation=_each(sums.busy / ticks),
        mean_queue=_each(sums.queued / ticks),
        mean_batch=_each(sums.served / numpy.maximum(sums.launches, 1)),
        mean_wait_ms=_each(tick * sums.waited / numpy.maximum(sums.served, 1)),
        expired_waits=tuple(int(each) for each in sums.expired),
        laps=laps,
        gaps=sums.gaps,
        tick_ms=tick,
    )


def pooled(traces: Sequence[Trace]) -> Trace:
    """What simulations of one vector, each as long as the others, saw together.

    The standard error is of the windows or of whole simulations, whichever is larger: they may
    have settled differently.
    """
    first = traces[0]
    rates = numpy.array([each.tokens_per_s for each in traces])
    windows = numpy.concatenate([each.windows for each in traces])
    served = numpy.array([each.hops.sum(axis=(0, 2)) for each in traces])
    launches = served / numpy.maximum([each.mean_batch for each in traces], 1.0)
    waits = served * [each.mean_wait_ms for each in traces]
    total = numpy.maximum(served.sum(axis=0), 1)
    expired = zip(*(each.expired_waits for each in traces), strict=True)
    return Trace(
        thresholds=first.thresholds,
        tokens_per_s=float(rates.mean()),
        stderr=max(_stderr(windows), _stderr(rates)),
        windows=windows,
        hops=numpy.concatenate([each.hops for each in traces]),
        tokens=numpy.sum([each.tokens for each in traces], axis=0),
        utilisation=_each(numpy.mean([each.utilisation for each in traces], axis=0)),
        mean_queue=_each(numpy.mean([each.mean_queue for each in traces], axis=0)),
        mean_batch=_each(served.sum(axis=0) / numpy.maximum(launches.sum(axis=0), 1e-300)),
        mean_wait_ms=_each(waits.sum(axis=0) / total),
        expired_waits=tuple(sum(each) for each in expired),
        laps=max(each.laps for each in traces),
        gaps=numpy.sum([each.gaps for each in traces], axis=0),
        tick_ms=first.tick_ms,
    )


def _each(values: Floats) -> tuple[float, ...]:
    return tuple(float(value) for value in values)


def _stderr(windows: Floats) -> float:
    return float(windows.std(ddof=1)) / float(numpy.sqrt(len(windows)))
