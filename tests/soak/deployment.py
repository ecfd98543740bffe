"""A real deployment of timed members, with every process of it in view."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

import psutil

from tests.integration.server import Server

TITLE = "tokenrouter::"
SUPERVISOR = "supervisor"


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

    def resources(self) -> dict[str, Mapping[str, int]]:
        """Descriptors and threads of each process."""
        return {
            name: {"fds": process.num_fds(), "threads": process.num_threads()}
            for name, process in self.processes().items()
        }

    def private_bytes(self) -> dict[str, int]:
        """Memory that each process has to itself."""
        return {
            name: process.memory_full_info().uss for name, process in self.processes().items()
        }
