"""TCP ports that stay free until the process that is told of one listens, seconds later."""

from __future__ import annotations

import random
import socket
from collections.abc import Container
from contextlib import ExitStack
from pathlib import Path

from tokenrouter.errors import StartupError

OURS = range(20_000, 30_000)
KERNEL_PORTS = Path("/proc/sys/net/ipv4/ip_local_port_range")
"""First and last of the ports that Linux hands out."""
_TRIES = 1000


def free_ports(count: int, besides: Container[object] = ()) -> list[int]:
    """Distinct TCP ports free at this moment (held together, then let go).

    They are none of those that the kernel hands out to everybody who asks for any port, as each
    client does, unless it hands out `OURS`, too; and none of ``besides``, on which somebody will
    listen who does not yet.

    Raises:
        StartupError: there are none.
    """
    candidates = [0] * _TRIES if _handed_out() else random.SystemRandom().sample(OURS, _TRIES)
    ports: list[int] = []
    with ExitStack() as stack:
        for candidate in candidates:
            if len(ports) == count:
                break
            holder = socket.socket()
            try:
                holder.bind(("", candidate))
            except OSError:
                holder.close()
                continue
            stack.enter_context(holder)
            port: int = holder.getsockname()[1]
            if port not in besides:
                ports.append(port)
    if len(ports) < count:
        raise StartupError(
            f"no TCP port is free ({_TRIES} were tried); end what uses them, or set port and "
            "ports: {NAME: {nccl: PORT}}"
        )
    return ports


def _handed_out() -> bool:
    """Whether the kernel may hand out any of `OURS`, as far as is known."""
    try:
        first, last = map(int, KERNEL_PORTS.read_text().split())
    except (OSError, ValueError):
        return True
    return first < OURS.stop and last >= OURS.start
