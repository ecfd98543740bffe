"""The front-end process: its address, its start, its end."""

from __future__ import annotations

import os
import pickle
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import httpx
import msgspec
import pytest
import zmq

from tests.frontend.fakes import (
    Deployment,
    StartupFailedError,
    deployment,
    make_config,
    make_roster,
    reply_text,
)
from tokenrouter.errors import StartupError
from tokenrouter.frontend.process import bind, bind_private
from tokenrouter.ipc.messages import DETOKENIZER, PROTOCOL_VERSION, Frame
from tokenrouter.ipc.ports import choose_ports


def test_a_taken_port_is_named_with_the_remedy(folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        config = make_config(folder, port=port)
        with (
            pytest.raises(StartupFailedError, match=f"127.0.0.1:{port}: .*use.*--port"),
            deployment(config, make_roster()),
        ):
            pass


@pytest.mark.parametrize("host", ["nowhere.invalid", "203.0.113.1"])
def test_an_address_of_another_machine(host: str) -> None:
    with pytest.raises(StartupError, match=f"cannot listen on {host}:0"):
        bind(host, 0)


def test_clients_are_refused_until_the_server_listens() -> None:
    with bind("127.0.0.1", 0) as listener, pytest.raises(ConnectionRefusedError):
        socket.create_connection(listener.getsockname())


def test_the_socket_of_a_front_end_that_died_is_replaced(folder: Path) -> None:
    ports = choose_ports(folder, ("one",), {})
    for _ in range(2):  # a closed socket's file stays
        with bind_private(ports) as listener, socket.socket(socket.AF_UNIX) as client:
            listener.listen()
            client.connect(os.fspath(ports.http))


def test_the_end_answers_every_request(folder: Path) -> None:
    with (
        deployment(make_config(folder), make_roster()) as running,
        ThreadPoolExecutor() as pool,
    ):
        url = f"{running.url}/generate"
        body = {"text": ["STOP", "STOP"], "sampling_params": {"max_new_tokens": 4}}
        answer = pool.submit(httpx.post, url, json=body, timeout=20)
        assert running.members.wait_for(lambda: len(running.members.submitted) == 2)
        start = time.monotonic()
        running.front_end.terminate()
        assert answer.result().status_code == 503
        assert "stopping" in answer.result().json()["error"]["message"]
        running.front_end.join(10)
        assert time.monotonic() - start < 1.5


@contextmanager
def detokenizer_link(running: Deployment) -> Iterator[zmq.Socket[bytes]]:
    """A socket on which the front end takes frames of the detokenizer."""
    with zmq.Context() as context, context.socket(zmq.PUSH) as link:
        link.connect(running.members.ports.tokenizer)
        yield link


def test_frames_of_nobody_are_dropped(folder: Path) -> None:
    with (
        deployment(make_config(folder), make_roster()) as running,
        detokenizer_link(running) as link,
    ):
        for data in (b"no frame", pickle.dumps(os.getpid), msgspec.msgpack.encode([1, 2])):
            link.send(data)
        body = {"text": "abc", "sampling_params": {"max_new_tokens": 400}}
        answer = httpx.post(f"{running.url}/generate", json=body, timeout=20)
        assert answer.json()["text"] == reply_text(b"abc")
        seen = httpx.get(f"{running.url}/metrics").text
        counted = 'tokenrouter_dropped_frames_total{kind="malformed",process="front-end"} 2.0'
        assert counted in seen.splitlines()


def test_a_front_end_that_has_missed_text_ends(folder: Path) -> None:
    with (
        deployment(make_config(folder), make_roster()) as running,
        detokenizer_link(running) as link,
    ):
        frame = Frame(PROTOCOL_VERSION, DETOKENIZER, 0, 0, 7, 0.0, [])
        link.send(msgspec.msgpack.encode(frame))
        running.front_end.join(5)
        assert running.front_end.exitcode == 0
