from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from types import FrameType

import pytest
import zmq

from tokenrouter.ipc.waiting import Waiter


@pytest.fixture
def signalled() -> Iterator[list[int]]:
    """Numbers of the SIGUSR1s whose Python handler has run."""
    seen: list[int] = []

    def handler(number: int, frame: FrameType | None) -> None:
        seen.append(number)

    before = signal.signal(signal.SIGUSR1, handler)
    yield seen
    signal.signal(signal.SIGUSR1, before)


def test_a_message_ends_the_wait() -> None:
    with (
        zmq.Context() as context,
        context.socket(zmq.PULL) as pull,
        context.socket(zmq.PUSH) as push,
    ):
        pull.bind("inproc://waiting")
        push.connect("inproc://waiting")
        waiter = Waiter([pull])
        push.send(b"x")
        waiter.wait(None)
        assert pull.recv(zmq.NOBLOCK) == b"x"
        waiter.close()


def test_the_wait_has_an_end() -> None:
    waiter = Waiter([])
    start = time.monotonic()
    waiter.wait(0.02)
    assert time.monotonic() - start >= 0.02
    waiter.close()


def test_a_signal_before_the_poll_ends_it(signalled: list[int]) -> None:
    waiter = Waiter([])
    os.kill(os.getpid(), signal.SIGUSR1)  # its handler runs now: the poll must not block
    assert signalled
    waiter.wait(None)
    waiter.close()


def test_a_signal_during_the_poll_ends_it(signalled: list[int]) -> None:
    waiter = Waiter([])
    main = threading.main_thread().ident
    assert main is not None
    timer = threading.Timer(0.05, signal.pthread_kill, (main, signal.SIGUSR1))
    timer.start()
    waiter.wait(None)
    timer.join()
    assert signalled
    waiter.close()


def test_another_thread_ends_it_whenever_it_comes() -> None:
    waiter = Waiter([])
    waiter.wake()
    waiter.wait(None)
    timer = threading.Timer(0.05, waiter.wake)
    timer.start()
    assert waiter.wait(None) == []
    timer.join()
    for _ in range(10_000):  # more than its buffer holds
        waiter.wake()
    waiter.wait(None)
    waiter.close()


def test_wakeup_is_left_as_it_was() -> None:
    Waiter([]).close()
    assert signal.set_wakeup_fd(-1) == -1


def test_a_wake_up_ends_one_wait_only() -> None:
    waiter = Waiter([])
    waiter.wake()
    waiter.wait(None)
    start = time.monotonic()
    waiter.wait(0.05)
    assert time.monotonic() - start >= 0.05, "the next wait ends at once: the loop would spin"
    waiter.close()
