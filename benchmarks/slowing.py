"""A deployment of timed members, each of which becomes slower once it gets SIGUSR1.

    python -m benchmarks.slowing --config FILE

Everything else is as `tokenrouter serve` runs it: nobody tells the planner.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from tokenrouter.config import Config, load
from tokenrouter.ipc.ports import Ports
from tokenrouter.ipc.supervision import ChildLink
from tokenrouter.processes import logs
from tokenrouter.processes.plan import Programs
from tokenrouter.subserver import member, process
from tokenrouter.supervisor import serve

FACTOR = 3.0
"""By which SIGUSR1 multiplies the time of every later step of the member that gets it."""


def run_member(
    config: Config, ports: Ports, index: int, cores: Sequence[int], link: ChildLink
) -> None:
    """`process.run_member`, with a step law that a signal changes."""
    factor = 1.0

    def slow(number: int, frame: object) -> None:
        nonlocal factor
        factor = FACTOR

    def law_of(step_ms: float) -> Callable[[int], float]:
        own = member_law(step_ms)
        return lambda batch: factor * own(batch)

    member_law = member.step_law
    member.step_law = law_of
    signal.signal(signal.SIGUSR1, slow)
    process.run_member(config, ports, index, cores, link)


def main() -> None:
    """Serve until SIGTERM."""
    config = load(Path(sys.argv[sys.argv.index("--config") + 1]))
    logs.set_up("supervisor", config.log_level, config.log_format)
    sys.exit(serve(config, lambda url: None, Programs(member="benchmarks.slowing:run_member")))


if __name__ == "__main__":
    main()
