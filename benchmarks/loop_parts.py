"""A member's loop as it is served, without a model: for `loop_cost.py`.

The measured loop runs in this process. Its peer, the front end's socket and the detokenizer
are processes of their own, linked by the channels that a deployment uses.
"""

from __future__ import annotations

import math
import multiprocessing
import signal
import socket
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import zmq

from tokenrouter.ipc.channels import Inbox, Outbox
from tokenrouter.ipc.messages import FRONT_END, Frame, Route, Sampling, Submit
from tokenrouter.ipc.ports import Ports, choose_ports
from tokenrouter.ipc.supervision import ChildLink, MemberReady, Roster
from tokenrouter.ipc.waiting import Waiter
from tokenrouter.processes import kernel
from tokenrouter.schedulers.signals import Signal
from tokenrouter.subserver.batching import Limits, Rules
from tokenrouter.subserver.engine import Meanwhile, StepBatch, Visit, Work, nothing
from tokenrouter.subserver.loop import Subserver
from tokenrouter.subserver.peers import PeerLinks

NAMES = ("small", "large")
POOL_TOKENS = 1 << 40
MAX_VISITS = 1024


class NoText:
    """The vocabulary of requests without stop strings."""

    def encode(self, text: str) -> list[int]:
        """Nothing is written."""
        return []

    def decode(self, ids: Sequence[int]) -> str:
        """Nothing is read."""
        return ""


TOKEN = 7
FORK = multiprocessing.get_context("fork")


class FreeEngine:
    """An engine whose step costs nothing; it sleeps ``step_s`` seconds, and always writes 7."""

    pool_tokens = POOL_TOKENS
    max_visits = MAX_VISITS

    def __init__(self, step_s: float = 0.0) -> None:
        self._step_s = step_s

    def limit_vocabulary(self, size: int) -> None:
        pass

    def admit(self, visit: Visit) -> bool:
        visit.computed = 0
        return True

    def should_wait(self, visit: Visit, others: Sequence[Visit]) -> bool:
        return False

    def share(self, visit: Visit, length: int) -> None:
        pass

    def step(
        self, work: Sequence[Work], signals: Sequence[Signal], meanwhile: Meanwhile = nothing
    ) -> StepBatch:
        meanwhile()
        if self._step_s:
            time.sleep(self._step_s)
        return StepBatch([TOKEN] * len(work), {})  # no load asks for signals

    def truncate(self, visit: Visit, length: int) -> None:
        pass

    def release(self, visit: Visit) -> None:
        pass

    def free_tokens(self) -> int:
        return POOL_TOKENS


@dataclass(frozen=True)
class Load:
    """``batch`` requests that never end, all of them in every step of the first member."""

    algorithm: str
    batch: int
    router_threshold: float | None = None
    stream: bool = True
    step_s: float = 0.0

    @property
    def rules(self) -> Rules:
        thresholds = (1, 1) if self.algorithm == "single" else (self.batch, 1)
        return Rules(thresholds, Limits(256, 8192), max_wait=math.inf)

    def submit(self, number: int) -> Submit:
        members = (0,) if self.algorithm == "single" else (0, 1)
        route = Route(self.algorithm, members, 0, self.router_threshold)
        prompt = [number] * 8
        sampling = Sampling(1 << 30, top_k=1, ignore_eos=True)
        return Submit(number, f"r{number}", prompt, sampling, route, self.stream)


def make_loop(
    context: zmq.Context[zmq.Socket[bytes]], ports: Ports, member: int, load: Load
) -> tuple[Subserver, PeerLinks]:
    ready = (
        MemberReady(m, POOL_TOKENS, MAX_VISITS, POOL_TOKENS, 100, (), "") for m in range(len(NAMES))
    )
    roster = Roster(tuple(ready), (0,) * len(NAMES))
    link = ChildLink(ports.supervisor, NAMES[member])  # to nobody: there is no news
    links = PeerLinks(context, ports, member, roster, link)
    engine = FreeEngine(load.step_s)
    return Subserver(member, NAMES, roster, engine, links, load.rules, NoText()), links


@contextmanager
def deployment(load: Load) -> Iterator[tuple[Subserver, Callable[[], list[float]]]]:
    """The first member's loop with its requests sent, and what ends the rest.

    That returns how many seconds each frame took from here to the peer.
    """
    with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as supervisor:
        ports = choose_ports(Path(folder), NAMES, {})
        supervisor.bind(str(ports.supervisor))
        supervisor.listen()
        ours, theirs = FORK.Pipe()
        others = [
            FORK.Process(target=_peer, args=(ports, load, theirs), daemon=True),
            FORK.Process(target=_sink, args=(ports,), daemon=True),
        ]
        for each in others:
            each.start()
        context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        subserver, links = make_loop(context, ports, 0, load)
        front_end = Outbox(context, ports.members[0].input, FRONT_END)
        for number in range(load.batch):
            front_end.post(load.submit(number))
        front_end.flush()

        def end() -> list[float]:
            others[0].terminate()
            delays: list[float] = ours.recv()
            return delays

        try:
            yield subserver, end
        finally:
            for each in others:
                each.terminate()
                each.join()
            links.close()
            front_end.close()
            context.term()


def _peer(ports: Ports, load: Load, report: Connection) -> None:
    """The second member; on SIGTERM it reports the delays of the frames that it got."""
    signal.signal(signal.SIGTERM, lambda number, frame: exit())
    kernel.wake_on_time()
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    subserver, links = make_loop(context, ports, 1, load)
    delays: list[float] = []
    inbox: Any = links._inboxes[0]
    accept = inbox._accept

    def timed_accept(data: bytes) -> Frame | None:
        frame: Frame | None = accept(data)
        if frame is not None:
            delays.append(time.monotonic() - frame.sent)
        return frame

    inbox._accept = timed_accept
    try:
        subserver.run()
    finally:
        report.send(delays)
        links.close()


def _sink(ports: Ports) -> None:
    """Takes what goes to the detokenizer."""
    signal.signal(signal.SIGTERM, lambda number, frame: exit())
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    inbox = Inbox(context, ports.detokenizer, {0: 0, 1: 0})
    waiter = Waiter([inbox.socket])
    while True:
        waiter.wait(None)
        for _ in inbox.drain():
            pass
