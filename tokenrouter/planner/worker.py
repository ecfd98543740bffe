"""Solving beside the planner's loop, at the lowest priority: members never wait for it."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from tokenrouter.errors import ConfigError
from tokenrouter.planner.problem import Problem, Solution

LOWEST = 19
"""Of nice values."""

logger = logging.getLogger(__name__)


class Worker:
    """One thread, from the start; ``done`` is called in it when there is a result."""

    def __init__(self, done: Callable[[], None]) -> None:
        self._done = done
        self._pool = ThreadPoolExecutor(1, "solver", _yield_to_everybody)
        self._pool.submit(int).result()  # or the thread would come with the first problem
        self._result: Future[Solution | None] | None = None

    def give(self, problem: Problem) -> None:
        """Begin to solve; only when there is nothing to `take`."""
        self._result = self._pool.submit(_solve, problem)
        self._result.add_done_callback(lambda _: self._done())

    def take(self) -> tuple[Solution | None] | None:
        """The result, once: of a problem that could not be solved, None in the tuple."""
        if self._result is None or not self._result.done():
            return None
        result, self._result = self._result, None
        return (result.result(),)


def _yield_to_everybody() -> None:
    # On Linux, this is of the thread alone: pings are answered as promptly as elsewhere.
    os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), LOWEST)


def _solve(problem: Problem) -> Solution | None:
    try:
        # With the first problem: numba takes a second of CPU time, and 80 MB.
        from tokenrouter.planner import solving

        return solving.solve(problem)
    except ConfigError as error:
        logger.warning("no thresholds for what was measured: %s", error)
    except Exception:
        # Of the solver's own: it would meet the same after a restart, from the same traffic.
        logger.exception("no thresholds, as the solver failed for %d live requests", problem.live)
    return None
