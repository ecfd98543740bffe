"""Delayed batching: when a batch launches, and what it feeds. Pure functions over visits.

Called by `loop.py` before each step. A visit is **ready** when one step can feed all its
pending tokens and sample; it is **prefilling** when it has control and needs more than
one step, or has let another one compute their common prompt first; **early** when it may
compute its prompt before control comes (eager prefill).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter

from tokenrouter.subserver.engine import Visit, Work

MOST_CHECKS = 512
"""Of one step: at 150,000 tokens of a vocabulary, 300 MB of float32 logits."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of one step.

    ``max_batch`` visits; ``chunk`` tokens beyond one for each visit; ``checks`` of drafts, each of
    which costs memory for logits over the whole vocabulary.
    """

    max_batch: int
    chunk: int
    checks: int = MOST_CHECKS


@dataclass(frozen=True, slots=True)
class Rules:
    """How one member batches.

    ``thresholds`` of all members, wanted by the user; ``max_wait``: seconds after which
    waiting visits launch whatever the threshold (None: `configuration/waits.py` says; inf: never).
    """

    thresholds: tuple[int, ...]
    limits: Limits
    max_wait: float | None = None


def clamp(thresholds: Sequence[int], live: int) -> list[int]:
    """Thresholds that cannot deadlock ``live`` requests, close to those wanted.

    ``live`` (A) counts the requests that are queued, running or travelling and may visit
    every member. If sum(theta - 1) <= A - 1, some member always has enough of them; else
    each theta - 1 shrinks in proportion, rounded by largest remainder.
    """
    delays = [threshold - 1 for threshold in thresholds]
    total, allowed = sum(delays), max(live - 1, 0)
    if total <= allowed:
        return list(thresholds)
    shrunk = [delay * allowed // total for delay in delays]
    remainders = [delay * allowed % total for delay in delays]
    by_remainder = sorted(range(len(delays)), key=lambda m: (-remainders[m], m))
    for member in by_remainder[: allowed - sum(shrunk)]:
        shrunk[member] += 1
    return [delay + 1 for delay in shrunk]


def choose(
    visits: Iterable[Visit], threshold: int, limits: Limits, overdue: bool = False
) -> list[Work]:
    """The work of the next step, oldest first in each class; empty: wait.

    A launch needs ``threshold`` counted ready visits, or a ready visit that never waits
    for one, or ``overdue``, or prefill work, which waits for nothing. Whatever caused it,
    all ready visits join. Early prompts run only when no ready batch is due.
    """
    ready: list[Visit] = []
    prefilling: list[Visit] = []
    early: list[Visit] = []
    counted = 0
    most = 1 + limits.chunk
    for visit in visits:
        if visit.control:
            if visit.blocked:
                continue
            pending = len(visit.tokens) - visit.computed
            if visit.follows or pending > most or (visit.unchecked and _too_many(visit, limits)):
                prefilling.append(visit)
            else:
                ready.append(visit)
                counted += visit.counted
        elif visit.eager and visit.computed < visit.prompt_length:
            early.append(visit)
    due = counted >= threshold or counted < len(ready) or (overdue and bool(ready))
    if ready and due:
        early = []
    elif not prefilling and not early:
        return []
    for group in (ready, prefilling, early):
        group.sort(key=attrgetter("uid"))
    # Prefill is kept a place and a quarter of the chunk: however many are ready, it goes on.
    places = int(bool(prefilling) and limits.max_batch > 1)
    tokens = math.ceil(limits.chunk / 4) if prefilling else 0
    budget = _Budget(limits.chunk - tokens, limits.checks)
    work = budget.allot(ready[: limits.max_batch - places])
    others = [*prefilling, *early][: limits.max_batch - len(work)]
    budget.tokens += tokens
    return work + budget.allot(others)


def _too_many(visit: Visit, limits: Limits) -> bool:
    """Whether one step cannot check all drafts of a visit."""
    return len(visit.to_check(visit.pending)) > limits.checks


@dataclass(slots=True)
class _Budget:
    """What is left for a step: ``tokens`` beyond one for each visit, and ``checks``."""

    tokens: int
    checks: int

    def allot(self, visits: Sequence[Visit]) -> list[Work]:
        """What each visit feeds: one token, and more while there is something left."""
        work: list[Work] = []
        for visit in visits:
            n = len(visit.tokens) - visit.computed
            if n > 1 or visit.unchecked:
                n = self._bounded(visit, n)
            if n:
                work.append((visit, n))
        return work

    def _bounded(self, visit: Visit, n: int) -> int:
        """How many of ``n`` tokens the visit may feed; they are taken from what is left."""
        if n > 1:
            if not self.tokens:
                return 0
            n = min(n, 1 + self.tokens)
        if visit.unchecked:
            n = self._checked(visit, n)
        if n:
            self.tokens -= n - 1
        return n

    def _checked(self, visit: Visit, n: int) -> int:
        """How many of ``n`` tokens can be fed, for the checks that this takes."""
        places = visit.to_check(n)
        if len(places) > self.checks:
            n = places.start + self.checks - visit.computed - 1
            places = visit.to_check(n)
        self.checks -= len(places)
        return n
