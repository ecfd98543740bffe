"""A lane: what waits for one thread, in order, and can be taken out again.

`grammar_compiler.py` has two, so that small grammars need not wait behind large ones.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

Job = TypeVar("Job")


class Lane(Generic[Job]):
    """A thread serves it while there are jobs.

    Args:
        serve: what is done with a job; must not raise.
    """

    def __init__(self, name: str, serve: Callable[[Job], None]) -> None:
        self._name, self._serve = name, serve
        self._jobs: deque[Job] = deque()
        self._lock = threading.Lock()
        self._served = False

    def put(self, job: Job) -> None:
        """Queue ``job``."""
        with self._lock:
            self._jobs.append(job)
            start, self._served = not self._served, True
        if start:
            threading.Thread(target=self._run, name=self._name, daemon=True).start()

    def drop(self, job: Job) -> None:
        """Forget ``job`` if it still waits."""
        with self._lock:
            if job in self._jobs:
                self._jobs.remove(job)

    def _run(self) -> None:
        while (job := self._next()) is not None:
            self._serve(job)

    def _next(self) -> Job | None:
        with self._lock:
            if self._jobs:
                return self._jobs.popleft()
            self._served = False
            return None
