"""A log of every routing decision of the requests that a home owns, for replays.

Called by `home.py` when the configuration names a folder (``record_decisions``). A thread
writes: a disk that is full, slow or gone costs rows, which are counted and logged, and nothing
else. (The supervisor refuses to start a deployment whose folder cannot be written.)

Each start of a member adds two files, ``START-MEMBER-PID.json`` and ``START-MEMBER-PID.rows``.
The rows are of one size, without a header, in the order in which the home carried them out;
``numpy.fromfile(rows, dtype)`` reads them, where dtype is ``[tuple(field) for field in
header["fields"]]``, little-endian and packed:

    uid      u8  the request; never used twice
    time     f8  seconds, on the monotonic clock of the host
    member   u2  that has stepped, as an index of ``members``
    to       u2  the member that goes on
    kept     u2  tokens that the step made final
    visits   u2  members that the request may visit (all of them: it waits for thresholds)
    fed      u4  tokens that were new to the member at this step: those since its last one, or,
                 at the first, the prompt as well (the prefix cache may have had some of them)
    algorithm u2 that decided, as an index of ``algorithms``; 65535: it has no name there

The step at which a request ended is its last row. The header holds ``format`` (1), ``fields``,
``rows`` (the file), ``members`` (names), ``home`` (index), ``unix_time`` and ``time`` (of the
start, on either clock), ``algorithm``, ``router_threshold`` and ``algorithm_args`` (those of
requests that give none), ``algorithms`` (names: first that one, then what else requests may name)
and ``thresholds`` (of the configuration).
"""

from __future__ import annotations

import json
import logging
import os
import struct
import threading
import time
from collections import deque
from functools import partial
from pathlib import Path

from tokenrouter.config import Config
from tokenrouter.ipc.messages import Commit, HandOver, Route
from tokenrouter.processes.signals import start_without_signals
from tokenrouter.schedulers import registry
from tokenrouter.subserver.owned import Owned

FORMAT = 1
FIELDS = (
    ("uid", "<u8"),
    ("time", "<f8"),
    ("member", "<u2"),
    ("to", "<u2"),
    ("kept", "<u2"),
    ("visits", "<u2"),
    ("fed", "<u4"),
    ("algorithm", "<u2"),
)
ROW = struct.Struct("<QdHHHHIH")
UNNAMED = 2**16 - 1
MAX_QUEUED = 100_000
"""Rows that may wait to be written; more are lost until some are."""
WRITE_EVERY_S = 0.2
LAST_WRITE_S = 1.0
"""How long the end of the process waits for the last rows."""

logger = logging.getLogger(__name__)


class Recorder:
    """Writes the decisions of member ``home``'s requests to ``folder``.

    Where no file can be made there, all of them are lost.
    """

    def __init__(self, config: Config, folder: Path, home: int) -> None:
        self._queue: deque[bytes] = deque()
        self._seen: dict[int, dict[int, int]] = {}
        self._own = config.algorithm
        self._named = {name: 1 + index for index, name in enumerate(_further(config))}
        self._refused = self._unwritten = 0
        self._size = 0
        self._file: int | None = None
        try:
            self._file = _create(config, folder, home)
        except OSError as error:
            logger.error("no routing decision is recorded, all are lost: %s", error)
        self._failing = False
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None
        if self._file is not None:
            write = partial(self._write_all, self._file)
            self._thread = threading.Thread(target=write, name="decisions", daemon=True)
            start_without_signals(self._thread)

    @property
    def lost(self) -> int:
        """Decisions that are in no file."""
        return self._refused + self._unwritten

    def decided(
        self,
        owned: Owned,
        member: int,
        message: Commit | HandOver,
        length: int,
        kept: int,
        now: float,
    ) -> None:
        """What ``member`` decided at ``now``, after a step that had seen ``length`` tokens.

        It made ``kept`` tokens final.
        """
        if self._file is None or len(self._queue) >= MAX_QUEUED:
            self._refused += 1
            return
        seen = self._seen.setdefault(owned.uid, {})
        # Whoever knows all has the last token fed again.
        fed = max(length - seen.get(member, 0), 1)
        seen[member] = message.start
        to = message.to if isinstance(message, HandOver) else member
        visits = len(owned.route.members)
        algorithm = self._index_of(owned.route)
        self._queue.append(ROW.pack(owned.uid, now, member, to, kept, visits, fed, algorithm))

    def _index_of(self, route: Route) -> int:
        if route.preset is None and route.algorithm == self._own:
            return 0
        return self._named.get(route.preset or route.algorithm, UNNAMED)

    def ended(self, uid: int) -> None:
        """Nothing more will come of a request."""
        self._seen.pop(uid, None)

    def close(self) -> None:
        """Write what is queued, unless that takes too long."""
        self._closing.set()
        if self._thread is not None:
            self._thread.join(LAST_WRITE_S)
        if lost := self.lost + len(self._queue):
            logger.warning("%d routing decisions are missing from the recording", lost)

    def _write_all(self, file: int) -> None:
        while not self._closing.wait(WRITE_EVERY_S):
            self._write(file)
        self._write(file)
        os.close(file)

    def _write(self, file: int) -> None:
        rows = [self._queue.popleft() for _ in range(len(self._queue))]
        data = memoryview(b"".join(rows))
        written = 0
        try:
            while written < len(data):
                written += os.pwrite(file, data[written:], self._size + written)
            self._failing = False
        except OSError as error:
            if not self._failing:
                logger.error("routing decisions are not recorded, and lost: %s", error)
            self._failing = True
        # A row cut short is written over.
        whole = written // ROW.size
        self._size += whole * ROW.size
        self._unwritten += len(rows) - whole


def _further(config: Config) -> list[str]:
    """What requests may name besides the deployment's own settings."""
    return list(dict.fromkeys([*config.algorithms, *registry.BUILT_IN]))


def _create(config: Config, folder: Path, home: int) -> int:
    """Write the header; returns a descriptor of the file for rows."""
    started = time.strftime("%Y%m%dT%H%M%S", time.gmtime())
    stem = f"{started}-{home}-{os.getpid()}"
    header = {
        "format": FORMAT,
        "fields": FIELDS,
        "rows": f"{stem}.rows",
        "members": config.names,
        "home": home,
        "unix_time": time.time(),
        "time": time.monotonic(),
        "algorithm": config.algorithm,
        "router_threshold": config.router_threshold,
        "algorithm_args": config.algorithm_args,
        "algorithms": [config.algorithm, *_further(config)],
        "thresholds": [model.threshold for model in config.models],
    }
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps(header, indent=1, default=str)
    (folder / f"{stem}.json").write_text(text + "\n")
    return os.open(folder / f"{stem}.rows", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
