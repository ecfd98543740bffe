"""A follower around a timed engine, as a process of its own.

    python -m tests.subserver.follower_program DIRECTORY

where a test plays the supervisor (``supervisor.sock``) and rank 0.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tests.subserver.ranked import Rank
from tokenrouter.config import Config
from tokenrouter.ipc.ports import choose_ports
from tokenrouter.processes.children import run
from tokenrouter.processes.protocol import ChildSpec, Launch
from tokenrouter.subserver import follower

SPEC = ChildSpec("large#1", "tests.subserver.follower_program:follow", 1, (), 1)


def config() -> Config:
    """Two members; what they compute with does not matter."""
    models = [
        {"name": name, "engine": "timed", "step_ms": 1, "threshold": 1}
        for name in ("small", "large")
    ]
    return Config.model_validate({"models": models})


def follow(*arguments: object) -> None:
    """The real follower, but for its engine."""
    follower.load_rank = lambda *ignored: Rank(lambda b: 0.0, range(100, 200), 100, 8)  # type: ignore[assignment]
    follower.run_follower(*arguments)  # type: ignore[arg-type]


def main() -> None:
    ports = choose_ports(Path(sys.argv[1]), config().names, {})
    launch = Launch("", ports, (SPEC,), "", shared=True)
    sys.exit(run(SPEC, config(), launch, os.getppid()))


if __name__ == "__main__":
    main()
