"""The planner's process: asks the members what they measure, and tells them their thresholds.

Members keep the thresholds they were told last until the supervisor gives this process up, so
no request needs it. What it computes with is imported when it is first needed (`worker.py`):
starts do not wait for it.
"""

from __future__ import annotations

import gc
import time

import zmq

from tokenrouter.config import Config
from tokenrouter.ipc.messages import DETOKENIZER, PLANNER
from tokenrouter.ipc.ports import Ports
from tokenrouter.ipc.process_links import ProcessLinks
from tokenrouter.ipc.supervision import ChildLink, Ready, Roster
from tokenrouter.planner.controller import Controller
from tokenrouter.planner.problem import terms
from tokenrouter.planner.worker import Worker
from tokenrouter.processes import kernel


def run_planner(config: Config, ports: Ports, link: ChildLink) -> None:
    """The process, until SIGTERM."""
    kernel.yield_to_members()
    link.send(Ready())
    roster = link.roster()
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    links = open_links(context, ports, roster, link)
    controller = Controller(terms(config, roster), time.monotonic())
    worker = Worker(links.wake)
    gc.freeze()
    try:
        while True:
            _look(links, controller, worker)
    finally:
        links.close()
        context.term()


def open_links(
    context: zmq.Context[zmq.Socket[bytes]], ports: Ports, roster: Roster, link: ChildLink
) -> ProcessLinks:
    """Members' states in; questions and plans out, and what the detokenizer tells operators."""
    members = {m: each.input for m, each in enumerate(ports.members)}
    receivers = {**members, DETOKENIZER: ports.detokenizer}
    return ProcessLinks(context, PLANNER, roster, link, {ports.planner: list(members)}, receivers)


def _look(links: ProcessLinks, controller: Controller, worker: Worker) -> None:
    """Ask and tell; then take what comes, until it is time to ask again."""
    for process, order in controller.messages(time.monotonic()):
        links.post(process, order)
    links.flush()
    end = time.monotonic() + controller.pause
    while (left := end - time.monotonic()) > 0:
        for process, message in links.poll(left):
            controller.hear(process, message, time.monotonic())
        if (done := worker.take()) is not None:
            controller.solved(done[0], time.monotonic())
            return  # members are told at once
    if problem := controller.problem(time.monotonic()):
        worker.give(problem)
