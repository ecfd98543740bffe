"""Frames that an `Inbox` did not apply: all counted, the first of each kind logged at once.

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
    """Those of one inbox, at ``address``; ``counts``: by kind."""

    def __init__(self, address: str, clock: Callable[[], float] = time.monotonic) -> None:
        self.counts: Counter[str] = Counter()
        self._address, self._clock = address, clock
        self._logged: Counter[str] = Counter()
        self._due: dict[str, float] = {}

    def add(self, kind: str, detail: str) -> None:
        """Take account of one frame; ``kind`` is one of a few words of the inbox."""
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
            f"a {kind} frame" if unlogged == 1 else f"{unlogged} {kind} frames, the last",
            detail[:DETAIL_CHARACTERS],
        )
