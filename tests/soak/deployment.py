"""A real deployment of timed members, with every process of it in view."""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.integration.server import SETTLE_S, Server

RUNNING = "tokenrouter_num_requests_in_flight"
BAD_WORDS = (" ERROR ", " CRITICAL ", "Traceback", "Warning")


def timed(*step_ms: float, **options: Any) -> dict[str, Any]:
    """A configuration of members named a, b, ... whose steps take so many milliseconds.

    Nobody's wait for a threshold ends by itself: a stall shows.
    """
    models = [
        {"name": name, "engine": "timed", "step_ms": ms}
        for name, ms in zip("abcdefgh", step_ms, strict=False)
    ]
    return {"served_name": "soak", "models": models, "max_wait_ms": 60_000, **options}


class Deployment(Server):
    """A `Server` whose processes can be counted, watched and harmed.

    ``wrapper``: a command that runs the one it is given in its own process.
    """

    def __init__(
        self, config: Mapping[str, Any], wrapper: Sequence[str] = (), **programs: str
    ) -> None:
        super().__init__(config, **programs)
        self._command = [*wrapper, *self._command]

    def resources(self) -> dict[str, dict[str, Counter[str]]]:
        """Descriptors (by kind) and threads (by name) of each process, once they rest."""
        before, now = None, _resources(self.processes())
        while now != before:
            time.sleep(1.0)
            before, now = now, _resources(self.processes())
        return now

    def assert_resources(self, before: Mapping[str, Any]) -> None:
        """Descriptors and threads are again what they were, within seconds."""
        deadline = time.monotonic() + SETTLE_S
        while (after := _resources(self.processes())) != before:
            changed = {n: (before.get(n), after[n]) for n in after if after[n] != before.get(n)}
            assert time.monotonic() < deadline, changed
            time.sleep(0.2)

    def running(self) -> int:
        """Requests that the front end holds."""
        text = self.client.get("/metrics").text
        (line,) = (line for line in text.splitlines() if line.startswith(RUNNING))
        return int(float(line.split()[-1]))

    def assert_settled(self) -> None:
        """As `assert_clean`, where processes have died: frames of the dead may have come."""
        deadline = time.monotonic() + SETTLE_S
        while used := [
            state
            for state in self.states()
            if state["visits"] or state["requests"] or state["live"]
            or state["free_tokens"] != state["pool_tokens"]
        ]:  # fmt: skip
            assert time.monotonic() < deadline, f"still in use: {used}"
            time.sleep(0.1)
        assert self.running() == 0
        for state in self.states():
            assert state["expired_waits"] == 0, state
            assert set(state["dropped"]) <= {"stale"}, state

    def private_bytes(self) -> dict[str, int]:
        """Memory that each process has to itself."""
        return {name: _private_bytes(pid) for name, pid in self.processes().items()}

    def hurt(self, name: str, number: int) -> None:
        """Send a signal to one process."""
        os.kill(self.processes()[name], number)

    def errors(self) -> list[str]:
        """What was logged that should not happen."""
        lines = self.log.read_text().splitlines()
        return [line for line in lines if any(word in line for word in BAD_WORDS)]


def _resources(pids: Mapping[str, int]) -> dict[str, dict[str, Counter[str]]]:
    return {
        name: {"descriptors": _descriptors(pid), "threads": _threads(pid)}
        for name, pid in pids.items()
    }


def _descriptors(pid: int) -> Counter[str]:
    kinds: Counter[str] = Counter()
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            kinds[re.sub(r"\d+", "N", str(link.readlink()))] += 1
    return kinds


def _threads(pid: int) -> Counter[str]:
    return Counter(
        (task / "comm").read_text().strip() for task in Path(f"/proc/{pid}/task").iterdir()
    )


def _private_bytes(pid: int) -> int:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(1024 * int(line.split()[1]) for line in lines if line.startswith("Private_"))
