"""What `event_loop.py` reads and writes: plain arrays, so that it can be compiled."""

from __future__ import annotations

from typing import NamedTuple

import numpy
from numpy.typing import NDArray

from tokenrouter.throughput_model.parameters import Floats

Ints = NDArray[numpy.int64]
NEVER = numpy.iinfo(numpy.int64).max
BINS_PER_E = 200
"""Bins of gaps for each factor e: a quantile is exact to a quarter of a per cent."""
BINS = 2 + 44 * BINS_PER_E


class Rules(NamedTuple):
    """Models and their thresholds; times in ticks.

    ``base``: (M, B), of steps of 1, 2, ... requests, before rounding, and ``per_token``: (M,),
    more for each token. ``limits``, ``thresholds``: (M,). ``max_wait`` may be `NEVER`.
    """

    base: Floats
    per_token: Floats
    limits: Ints
    thresholds: Ints
    hop: int
    max_wait: int


class Steps(NamedTuple):
    """Decisions, as in `decisions.Tapes`."""

    first: NDArray[numpy.int8]
    following: NDArray[numpy.int8]
    committed: NDArray[numpy.float32]
    lengths: Ints


class State(NamedTuple):
    """Where everything is; M models, N requests.

    A model: who ``waiting`` (M, N), how many ``queued``, since when the ``longest``; its ``batch``
    (M, N) of ``size``, which began and ends at ``end`` (`NEVER`: idle). A request: in its queue
    ``since``; ``step`` of its tape, ``laps`` of it; tokens ``written``, and how many each model has
    ``seen`` (N, M). Between models: a ring of N ``travellers``, bound ``to``, ``due`` in order;
    ``ring`` is [first, number].
    """

    waiting: NDArray[numpy.bool_]
    queued: Ints
    longest: Ints
    batch: Ints
    size: Ints
    end: Ints
    since: Ints
    step: Ints
    laps: Ints
    written: Floats
    seen: Floats
    travellers: Ints
    to: Ints
    due: Ints
    ring: Ints


class Sums(NamedTuple):
    """What happened from the end of the warm-up on, over W windows of ``width`` ticks.

    Of models: ticks ``busy``; ticks that requests were ``queued``; ticks that those launched had
    ``waited``; requests ``served`` in ``launches``, of which ``expired`` by the longest wait.
    ``windows``: (W,) tokens of each, and ``hops``: (W, M, M) of steps on m, how many led to k;
    ``tokens``: (N,). ``gaps``: (`BINS`,) of tokens by the time
    since the one before; ``last``: (N,) when that was; ``carry``: (N,) parts of the next one.
    """

    begin: int
    width: int
    windows: Floats
    hops: Ints
    tokens: Floats
    busy: Ints
    queued: Ints
    waited: Ints
    served: Ints
    launches: Ints
    expired: Ints
    gaps: Ints
    last: Ints
    carry: Floats


def blank_state(models: int, requests: int) -> State:
    """Everything idle, nobody anywhere."""

    def of(*shape: int) -> Ints:
        return numpy.zeros(shape, numpy.int64)

    return State(
        waiting=numpy.zeros((models, requests), numpy.bool_),
        queued=of(models),
        longest=numpy.full(models, NEVER),
        batch=of(models, requests),
        size=of(models),
        end=numpy.full(models, NEVER),
        since=of(requests),
        step=of(requests),
        laps=of(requests),
        written=numpy.zeros(requests),
        seen=numpy.zeros((requests, models)),
        travellers=of(requests),
        to=of(requests),
        due=of(requests),
        ring=of(2),
    )


def blank_sums(models: int, requests: int, begin: int, width: int, windows: int) -> Sums:
    """Nothing counted yet."""

    def of(*shape: int) -> Ints:
        return numpy.zeros(shape, numpy.int64)

    return Sums(
        begin=begin,
        width=width,
        windows=numpy.zeros(windows),
        hops=of(windows, models, models),
        tokens=numpy.zeros(requests),
        busy=of(models),
        queued=of(models),
        waited=of(models),
        served=of(models),
        launches=of(models),
        expired=of(models),
        gaps=of(BINS),
        last=of(requests),
        carry=numpy.zeros(requests),
    )
