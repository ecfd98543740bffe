"""The front-end process: its address, its start, its end."""

from __future__ import annotations

import socket
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
import zmq

from tests.frontend.fakes import StartupFailedError, deployment, make_config, make_roster
from tokenrouter.errors import StartupError
from tokenrouter.frontend.process import bind


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


def test_a_front_end_that_cannot_hear_the_detokenizer_ends(folder: Path) -> None:
    with deployment(make_config(folder), make_roster()) as running:
        context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        with context.socket(zmq.PUSH) as link:
            link.connect(running.members.ports.tokenizer)
            link.send(b"no pickle")
            running.front_end.join(5)
        context.term()
        assert running.front_end.exitcode == 0
