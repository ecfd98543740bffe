"""The process of a further rank: it repeats what it hears, answers pings, and ends when told."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import zmq

from tokenrouter.ipc.channels import Outbox
from tokenrouter.ipc.ports import choose_ports
from tokenrouter.ipc.rank_calls import Admit, Feed, Release
from tokenrouter.ipc.supervision import (
    ChildMessage,
    Hello,
    Ping,
    Pong,
    Ready,
    Roster,
    StartupFailed,
    StreamDecoder,
    SupervisorMessage,
    encode,
)

pytestmark = pytest.mark.timeout(60)
ROOT = Path(__file__).parents[2]
GENERATIONS = (7, 8)


class Follower:
    """A running one, seen by its supervisor and by its rank 0."""

    def __init__(self, directory: Path) -> None:
        ports = choose_ports(directory, ("small", "large"), {})
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(os.fspath(ports.supervisor))
            listener.listen()
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.subserver.follower_program", os.fspath(directory)],
                cwd=ROOT, stderr=subprocess.PIPE, text=True,
            )  # fmt: skip
            self.link, _ = listener.accept()
        self._decoder = StreamDecoder()
        self._heard: list[ChildMessage] = []
        self.context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.leader = Outbox(self.context, ports.rank(1, 1), 1, GENERATIONS[1], GENERATIONS[1])

    def tell(self, message: SupervisorMessage) -> None:
        self.link.sendall(encode(message))

    def hear(self) -> ChildMessage:
        while not self._heard:
            data = self.link.recv(4096)
            assert data, "it hung up"
            self._heard += self._decoder.feed(data)
        return self._heard.pop(0)

    def end(self) -> tuple[int, str]:
        """Its exit status, and what it logged."""
        _, log = self.process.communicate(timeout=30)
        return self.process.returncode, log

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stderr is not None
        self.process.stderr.close()
        self.link.close()
        self.leader.close()
        self.context.term()


@pytest.fixture
def follower() -> Iterator[Follower]:
    """One that has been told the roster."""
    with tempfile.TemporaryDirectory() as directory:
        follower = Follower(Path(directory))
        try:
            assert isinstance(hello := follower.hear(), Hello)
            assert (hello.name, hello.pid) == ("large#1", follower.process.pid)
            assert follower.hear() == Ready()
            follower.tell(Roster((), GENERATIONS))
            follower.tell(Ping(1))
            assert follower.hear() == Pong(1)
            yield follower
        finally:
            follower.close()


def test_it_repeats_and_answers_pings(follower: Follower) -> None:
    follower.leader.post(Admit(5, [1]))
    follower.leader.post(Feed([(5, [1, 2, 3])], 0))
    follower.leader.flush()
    follower.tell(Ping(2))
    assert follower.hear() == Pong(2)
    follower.leader.post(Release(5))
    follower.leader.flush()
    follower.tell(Ping(3))
    assert follower.hear() == Pong(3)
    follower.process.send_signal(signal.SIGTERM)
    assert follower.end() == (0, "")


def test_it_ends_when_it_has_diverged(follower: Follower) -> None:
    follower.leader.post(Feed([], 12345))
    follower.leader.flush()
    said = follower.hear()
    assert isinstance(said, StartupFailed)
    assert "the batches here differ from those of rank 0" in said.reason
    status, log = follower.end()
    assert status == 1
    assert said.reason in log


def test_frames_of_others_are_dropped(follower: Follower) -> None:
    stranger = Outbox(follower.context, follower.leader.address, 1, 1, GENERATIONS[1])
    stranger.post(Feed([], 12345))
    stranger.flush()
    assert follower.process.stderr is not None
    assert "stale" in follower.process.stderr.readline()
    follower.leader.post(Admit(5, [1]))
    follower.leader.flush()
    follower.tell(Ping(2))
    assert follower.hear() == Pong(2)
    stranger.close()
    follower.process.send_signal(signal.SIGTERM)
    assert follower.end()[0] == 0


def test_it_does_not_outlive_its_supervisor(follower: Follower) -> None:
    follower.link.close()
    status, log = follower.end()
    assert status == 1
    assert "the supervisor is gone" in log
