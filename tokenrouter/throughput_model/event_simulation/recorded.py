"""Routing decisions that a server recorded (`subserver/recording.py`), put on tapes.

Known to its callers as `decisions.load`.
"""

from __future__ import annotations

import json
from math import inf
from pathlib import Path
from typing import Any

import numpy
from numpy.typing import NDArray

from tokenrouter.errors import ConfigError
from tokenrouter.throughput_model.event_simulation.decision_tapes import Commits, Models, Tapes

Rows = NDArray[Any]
"""Structured: `FIELDS` and perhaps others; `subserver/recording.py` says of what."""
FIELDS = ["uid", "time", "member", "to", "kept", "visits"]
"""Of a row that are needed here."""
FORMAT = 1


def load(
    folder: Path, requests: int | None = None, since: float = -inf, until: float = inf
) -> Tapes:
    """Decisions that a server recorded in ``folder``, of requests that may visit all members.

    Of the time from ``since`` to ``until`` (seconds, on the host's monotonic clock). ``requests``
    tapes (None: one for each request), on which requests follow one another in order of age.

    Raises:
        ConfigError: nothing usable is recorded there, or rows are missing.
    """
    names, rows = _read(folder)
    parts = _requests(rows, len(names), since, until)
    tapes = [_joined(tape) for tape in _deal(parts, requests or len(parts))]
    shape = (len(tapes), max(len(to) for _, to, _ in tapes))
    following, committed = numpy.zeros(shape, numpy.int8), numpy.zeros(shape, numpy.float32)
    for index, (_, to, tokens) in enumerate(tapes):
        following[index, : len(to)], committed[index, : len(to)] = to, tokens
    return Tapes(
        first=numpy.array([first for first, _, _ in tapes], numpy.int8),
        following=following,
        committed=committed,
        lengths=numpy.array([len(to) for _, to, _ in tapes]),
    )


def outline(folder: Path) -> tuple[list[str], int]:
    """Names of the members, and how many requests were served at once in ``folder``, on average.

    Raises:
        ConfigError: as `load` does.
    """
    names, rows = _read(folder)
    parts = _requests(rows, len(names), -inf, inf)
    begun = numpy.array([steps["time"][0] for steps in parts])
    ended = numpy.array([steps["time"][-1] for steps in parts])
    whole = float(ended.max() - begun.min())
    return names, max(1, round(float((ended - begun).sum()) / whole)) if whole else len(parts)


def _read(folder: Path) -> tuple[list[str], Rows]:
    """Names of the members, and all rows of all homes; those of one request are in order.

    Raises:
        ConfigError: no recording is there, or one of another deployment or version as well.
    """
    names: list[str] = []
    parts: list[Rows] = []
    for path in sorted(folder.glob("*.json")):
        try:
            header = json.loads(path.read_text())
            if header["format"] != FORMAT:
                raise ConfigError(f"{path}: format {header['format']}; this version reads {FORMAT}")
            fields = numpy.dtype([(name, kind) for name, kind in header["fields"]])
            parts.append(numpy.fromfile(folder / header["rows"], fields)[FIELDS])
            members = header["members"]
        except (KeyError, TypeError, ValueError, OSError) as error:
            raise ConfigError(f"{path}: no recording of decisions: {error!r}; move it") from error
        if names and members != names:
            raise ConfigError(f"{path}: members {members}, but others have {names}; move it")
        names = members
    if not parts:
        raise ConfigError(f"{folder}: no recorded decisions; serve with record_decisions first")
    rows = numpy.concatenate(parts)
    return names, rows[numpy.argsort(rows["uid"], kind="stable")]


def _requests(rows: Rows, members: int, since: float, until: float) -> list[Rows]:
    """Steps from ``since`` to ``until`` of each request that may visit all members, oldest first.

    Raises:
        ConfigError: there are none, or some were lost between two of a request.
    """
    inside = (rows["time"] >= since) & (rows["time"] < until) & (rows["visits"] == members)
    kept = rows[inside]
    if not len(kept):
        raise ConfigError(
            f"recording: no decisions of requests that visit all {members} members from {since} "
            f"to {until} s; give other times"
        )
    new = numpy.flatnonzero(numpy.diff(kept["uid"])) + 1
    within = numpy.setdiff1d(numpy.arange(1, len(kept)), new)
    torn = within[kept["to"][within - 1] != kept["member"][within]]
    if len(torn):
        raise ConfigError(
            f"recording: rows of request {kept['uid'][torn[0]]} are missing near "
            f"{kept['time'][torn[0]]:.3f} s (a full disk?); give times before or after"
        )
    parts: list[Rows] = numpy.split(kept, new)
    return sorted(parts, key=lambda steps: float(steps["time"][0]))


def _deal(parts: list[Rows], count: int) -> list[list[Rows]]:
    """Requests one after the other on ``count`` tapes: each to the tape that is shortest so far.

    Raises:
        ConfigError: there are fewer requests than tapes.
    """
    if not 1 <= count <= len(parts):
        raise ConfigError(
            f"recording: {len(parts)} requests cannot fill {count} tapes, one for each at once; "
            "take fewer, or record more"
        )
    tapes: list[list[Rows]] = [[] for _ in range(count)]
    lengths = [0] * count
    for steps in parts:
        shortest = lengths.index(min(lengths))
        tapes[shortest].append(steps)
        lengths[shortest] += len(steps)
    return tapes


def _joined(tape: list[Rows]) -> tuple[int, Models, Commits]:
    """First member, where each step leads and what it committed, as a loop: the last step of a
    request leads to the first member of the next one, and of the last to that of the first.
    """
    starts = [int(steps["member"][0]) for steps in tape]
    following = numpy.concatenate([steps["to"] for steps in tape]).astype(numpy.int8)
    ends = numpy.cumsum([len(steps) for steps in tape]) - 1
    following[ends] = [*starts[1:], starts[0]]
    committed = numpy.concatenate([steps["kept"] for steps in tape]).astype(numpy.float32)
    return starts[0], following, committed
