"""What is not taken from a socket: all of it counted, the first of each kind logged at once.

However many follow, the log gets one more line per kind every `LOG_EVERY_S` seconds.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable

LOG_EVERY_S = 10.0
DETAIL_CHARACTERS = 200

logger = logging.getLogger(__name__)


class Drops:
    """Frames (or another ``unit``) dropped at ``address``; ``counts``: by kind."""

    def __init__(
        self, address: str, unit: str = "frame", clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.counts: Counter[str] = Counter()
        self._address, self._unit, self._clock = address, unit, clock
        self._logged: Counter[str] = Counter()
        self._due: dict[str, float] = {}

    def add(self, kind: str, detail: str) -> None:
        """Take account of one; ``kind`` is one of a few words of the receiver."""
        self.counts[kind] += 1
        now = self._clock()
        if now < self._due.get(kind, now):
            return
        self._due[kind] = now + LOG_EVERY_S
        unlogged = self.counts[kind] - self._logged[kind]
        self._logged[kind] = self.counts[kind]
        logger.warning(
            "%s: dropped %s (%s)",
            self._address,
            f"a {kind} {self._unit}"
            if unlogged == 1
            else f"{unlogged} {kind} {self._unit}s, the last",
            detail[:DETAIL_CHARACTERS],
        )
