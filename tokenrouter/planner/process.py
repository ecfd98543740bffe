"""The planner's process: asks the members what they measure, and tells them their thresholds.

Members keep the thresholds they were told last, so no request needs this process. What it
computes with is imported where it is first needed (`worker.py`): starts do not wait for it.
"""

from __future__ import annotations

import gc

import zmq

from tokenrouter.config import Config
from tokenrouter.ipc.messages import Inspect
from tokenrouter.ipc.ports import Ports
from tokenrouter.ipc.supervision import ChildLink, Ready
from tokenrouter.planner.links import PlannerLinks
from tokenrouter.processes import kernel

LOOK_S = 1.0
"""From one question to the members to the next."""


def run_planner(config: Config, ports: Ports, link: ChildLink) -> None:
    """The process, until SIGTERM."""
    kernel.yield_to_members()
    link.send(Ready())
    roster = link.roster()
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    links = PlannerLinks(context, ports, roster, link)
    gc.freeze()
    ticket = 0
    try:
        while True:
            list(links.poll(LOOK_S))
            for member in range(len(config.names)):
                links.send(member, Inspect(ticket))
            ticket += 1
    finally:
        links.close()
        context.term()
