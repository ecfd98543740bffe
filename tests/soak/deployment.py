"""A real deployment of timed members, with every process of it in view."""

from __future__ import annotations

import contextlib
import re
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil

from tests.integration.server import SETTLE_S, Server

TITLE = "tokenrouter::"
SUPERVISOR = "supervisor"
RUNNING = "tokenrouter_num_requests_in_flight"
BAD_WORDS = (" ERROR ", " CRITICAL ", "Traceback", "Warning")


def timed(*step_ms: float, **options: Any) -> dict[str, Any]:
    """A configuration of members named a, b, ... whose steps take so many milliseconds."""
    models = [
        {"name": name, "engine": "timed", "step_ms": ms}
        for name, ms in zip("abcdefgh", step_ms, strict=False)
    ]
    return {"served_name": "soak", "models": models, **options}


class Deployment(Server):
    """A `Server` whose processes can be counted, watched and harmed."""

    def processes(self) -> dict[str, psutil.Process]:
        """Every process, by name."""
        supervisor = psutil.Process(self._process.pid)
        found = {SUPERVISOR: supervisor}
        for process in supervisor.children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                title = " ".join(process.cmdline()).strip()
                if title.startswith(TITLE):
                    found[title.removeprefix(TITLE)] = process
        return found

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

    def errors(self) -> list[str]:
        """What was logged that should not happen."""
        lines = self.log.read_text().splitlines()
        return [line for line in lines if any(word in line for word in BAD_WORDS)]

    def private_bytes(self) -> dict[str, int]:
        """Memory that each process has to itself."""
        return {name: process.memory_full_info().uss for name, process in self.processes().items()}


def _resources(processes: Mapping[str, psutil.Process]) -> dict[str, dict[str, Counter[str]]]:
    return {
        name: {"descriptors": _descriptors(process.pid), "threads": _threads(process.pid)}
        for name, process in processes.items()
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
