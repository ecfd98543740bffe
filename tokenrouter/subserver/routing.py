"""The algorithm of each visit: made once per distinct route, asked after every step.

Between the loop, which knows batches, and `tokenrouter.schedulers`, which know one
request. An algorithm that raises or answers nonsense fails its own request only.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Sequence
from functools import lru_cache

import msgspec

from tokenrouter.errors import RoutingError, TokenRouterError
from tokenrouter.histogram import Histogram
from tokenrouter.schedulers.base import Decision, Request, RoutingScheduler, Step
from tokenrouter.schedulers.registry import create
from tokenrouter.schedulers.signals import Signal
from tokenrouter.subserver.engine import Visit

MAX_PAYLOAD_BYTES = 64 * 1024
KEPT_ALGORITHMS = 256
"""Distinct (algorithm, threshold, arguments) kept ready; others are made again."""
HOOK_S = (1e-6, 2e-6, 5e-6, 1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 1e-3, 1e-2, 1e-1, 1.0)
"""Bounds of the time in hooks."""

logger = logging.getLogger(__name__)


class Router:
    """Runs the hooks of every visit on member ``me``."""

    def __init__(self, members: Sequence[str], me: int) -> None:
        self._members = tuple(members)
        self._me = me
        self.seconds = {hook: Histogram(HOOK_S) for hook in ("start", "route", "receive")}
        """Time in hooks that did not fail; ``send`` counts as part of ``route``."""
        self._scheduler = lru_cache(KEPT_ALGORITHMS)(self._create)

    def begin(self, visit: Visit) -> None:
        """Give a new visit its algorithm, its state and its signals.

        Raises:
            RoutingError: the algorithm cannot be made or its ``start`` failed.
        """
        route = visit.route
        began = time.perf_counter()
        try:
            key = msgspec.msgpack.encode((route.algorithm, route.router_threshold, route.args))
            visit.scheduler = self._scheduler(key)
            visit.signals = _known(visit.scheduler.signals(self._me))
            visit.request = Request(
                visit.tokens, visit.prompt_length, self._me, route.seed, route.sample
            )
            visit.request.state = visit.scheduler.start(visit.request)
        except Exception as error:
            raise self._broken(visit, "start", error) from error
        self.seconds["start"].observe(time.perf_counter() - began)

    def decide(self, visit: Visit, step: Step) -> tuple[Decision, bytes]:
        """What the algorithm wants after ``step``, checked, and the payload it sends.

        Raises:
            RoutingError: it raised, or its answer is impossible.
        """
        began = time.perf_counter()
        try:
            decision = visit.scheduler.route(visit.request, step)
            payload = b""
            if decision.to != self._me:
                payload = visit.scheduler.send(visit.request, step, decision)
        except Exception as error:
            raise self._broken(visit, "route", error) from error
        self.seconds["route"].observe(time.perf_counter() - began)
        self._check(visit, step, decision, payload)
        return decision, payload

    def receive(self, visit: Visit, payload: bytes) -> None:
        """Tell the algorithm that its request arrived.

        Raises:
            RoutingError: the hook raised.
        """
        began = time.perf_counter()
        try:
            visit.scheduler.receive(visit.request, payload)
        except Exception as error:
            raise self._broken(visit, "receive", error) from error
        self.seconds["receive"].observe(time.perf_counter() - began)

    def _create(self, key: bytes) -> RoutingScheduler:
        name, threshold, args = msgspec.msgpack.decode(key)
        return create(name, self._members, threshold, args)

    def _check(self, visit: Visit, step: Step, decision: Decision, payload: bytes) -> None:
        route = visit.route
        problem = None
        if type(decision.keep) is not int or type(decision.to) is not int:
            problem = f"keep={decision.keep!r}, to={decision.to!r}, which must be ints"
        elif type(payload) is not bytes:
            problem = f"a payload of type {type(payload).__name__}, which must be bytes"
        elif not 0 <= decision.keep <= len(step.tokens):
            problem = f"keep={decision.keep} of a step of {len(step.tokens)} tokens"
        elif decision.to not in route.members:
            problem = f"to={decision.to}, which is not one of its members {route.members}"
        elif decision.keep == 0 and decision.to == self._me:
            problem = "keep=0 and the same member goes on: the step would repeat for ever"
        elif len(payload) > MAX_PAYLOAD_BYTES:
            problem = f"a payload of {len(payload)} bytes (limit {MAX_PAYLOAD_BYTES})"
        if problem:
            logger.error("request %d: %r decided %s", visit.uid, route.algorithm, problem)
            raise _failed(visit, f"decided {problem}")

    def _broken(self, visit: Visit, hook: str, error: Exception) -> RoutingError:
        if not isinstance(error, TokenRouterError):
            logger.exception("request %d: %s of %r", visit.uid, hook, visit.route.algorithm)
        text = f"{type(error).__name__}: {error}".encode("utf-8", "backslashreplace").decode()
        return _failed(visit, f"{hook} failed: {text}")


def _failed(visit: Visit, what: str) -> RoutingError:
    """Tells the number by which the logs of all members call the request."""
    return RoutingError(f"algorithm {visit.route.algorithm!r}: {what} (request {visit.uid})")


def _known(signals: Iterable[object]) -> tuple[Signal, ...]:
    """Signals, checked: an engine computes no others."""
    known = []
    for signal in signals:
        if not isinstance(signal, Signal):
            raise TypeError(f"unknown signal {signal!r}")
        known.append(signal)
    return tuple(known)
