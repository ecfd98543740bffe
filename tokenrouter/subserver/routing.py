"""The algorithm of each visit: made once per distinct route, asked after every step.

Between the loop, which knows batches, and `tokenrouter.schedulers`, which know one
request. An algorithm that raises or answers nonsense fails its own request only.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Sequence
from functools import lru_cache

import msgspec

from tokenrouter.errors import RoutingError, Terminated, TokenRouterError
from tokenrouter.histogram import Histogram
from tokenrouter.schedulers.base import Decision, Request, RoutingScheduler, Step, Vocabulary
from tokenrouter.schedulers.mistakes import failure
from tokenrouter.schedulers.registry import create
from tokenrouter.schedulers.signals import Checks, Signal
from tokenrouter.schedulers.trial import known
from tokenrouter.subserver.arrivals import problem_of_arrival
from tokenrouter.subserver.decisions import problem_of
from tokenrouter.subserver.engine import Visit
from tokenrouter.subserver.finish import FinishRule

KEPT_ALGORITHMS = 256
"""Distinct (algorithm, threshold, arguments) kept ready; others are made again."""
HOOK_S = (1e-6, 2e-6, 5e-6, 1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 1e-3, 1e-2, 1e-1, 1.0)
"""Bounds of the time in hooks."""

logger = logging.getLogger(__name__)


class Router:
    """Runs the hooks of every visit on member ``me``.

    Args:
        vocabulary_size: of the smallest member.
    """

    def __init__(
        self,
        members: Sequence[str],
        me: int,
        vocabulary: Vocabulary,
        vocabulary_size: int = sys.maxsize,
    ) -> None:
        self._members = tuple(members)
        self._me = me
        self._vocabulary = vocabulary
        self._vocabulary_size = vocabulary_size
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
            asked = known(visit.scheduler.signals(self._me))
            visit.signals = tuple(each for each in asked if isinstance(each, Signal))
            visit.check = next((each for each in asked if isinstance(each, Checks)), None)
            if visit.scheduler.drafts:
                decode = self._vocabulary.decode
                visit.ending = FinishRule(visit.sampling, visit.eos_ids, decode)
            visit.request = Request(
                visit.tokens, visit.prompt_length, self._me, route.seed, route.sample
            )
            visit.request.state = visit.scheduler.start(visit.request)
        except Terminated:
            raise
        except (Exception, SystemExit) as error:
            raise self._broken(visit, "start", error) from error
        self.seconds["start"].observe(time.perf_counter() - began)

    def decide(self, visit: Visit, step: Step) -> tuple[Decision, bytes]:
        """What the algorithm wants after ``step``, checked, and the payload it sends.

        Raises:
            RoutingError: it raised, or its answer is impossible.
        """
        scheduler, request = visit.scheduler, visit.request
        began, drafts = time.perf_counter(), request.drafts
        try:
            decision = scheduler.route(request, step)
            payload = b""
            if decision.to != self._me:
                payload = scheduler.send(request, step, decision)
            request.drafts = drafts  # whatever a hook made of it
            problem = problem_of(visit, step, decision, payload)
        except Terminated:
            raise
        except (Exception, SystemExit) as error:
            raise self._broken(visit, "route", error) from error
        self.seconds["route"].observe(time.perf_counter() - began)
        if problem:
            logger.error("request %d: %r decided %s", visit.uid, visit.route.algorithm, problem)
            raise _failed(visit, f"decided {problem}")
        return decision, payload

    def receive(self, visit: Visit, payload: bytes) -> None:
        """Tell the algorithm that its request arrived.

        Raises:
            RoutingError: the hook raised, or set what cannot be had.
        """
        began, drafts = time.perf_counter(), visit.request.drafts
        try:
            visit.scheduler.receive(visit.request, payload)
            visit.request.drafts = drafts
            problem = problem_of_arrival(visit, self._vocabulary_size)
        except Terminated:
            raise
        except (Exception, SystemExit) as error:
            raise self._broken(visit, "receive", error) from error
        if problem:
            visit.request.scratch = visit.request.proposals = ()
            raise _failed(visit, f"receive set {problem}")
        self.seconds["receive"].observe(time.perf_counter() - began)

    def _create(self, key: bytes) -> RoutingScheduler:
        name, threshold, args = msgspec.msgpack.decode(key)
        scheduler = create(name, self._members, threshold, args)
        scheduler.vocabulary = self._vocabulary
        return scheduler

    def _broken(self, visit: Visit, hook: str, error: BaseException) -> RoutingError:
        if not isinstance(error, TokenRouterError):
            logger.exception("request %d: %s of %r", visit.uid, hook, visit.route.algorithm)
        what = failure(visit.route.algorithm, hook, error)
        return RoutingError(f"{what} (request {visit.uid})")


def _failed(visit: Visit, what: str) -> RoutingError:
    """Tells the number by which the logs of all members call the request."""
    return RoutingError(f"algorithm {visit.route.algorithm!r}: {what} (request {visit.uid})")
