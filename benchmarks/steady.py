"""Requests that never end, for benchmarks that watch a server in a steady state."""

from __future__ import annotations

import json
import selectors
import socket
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

PATH = "/v1/completions"
CHUNK = 1 << 16


class Requests:
    """Completions that run until they are stopped, one connection each.

    Request ``number`` of any two sets has the same prompt, and so, as `Request.draw` hashes
    it, the same coins: what differs between two sets is the server, not chance.

    Args:
        tokens: asked for: more than are written before the end.
        stream: have every token sent here (and forgotten); else only the end would be.
    """

    def __init__(
        self, port: int, model: str, numbers: Sequence[int], tokens: int, stream: bool = True
    ) -> None:
        self._selector = selectors.DefaultSelector()
        self._problem = ""
        self._stopping = threading.Event()
        self._sockets = [
            self._ask(port, _body(model, number, tokens, stream)) for number in numbers
        ]
        self._thread = threading.Thread(target=self._drain, daemon=True)
        self._thread.start()

    def check(self) -> None:
        """End the benchmark if a request did: the state was not steady."""
        if self._problem:
            sys.exit(f"a request ended before it was stopped: {self._problem}")

    def stop(self) -> None:
        """Hang up, which aborts them."""
        self._stopping.set()
        for each in self._sockets:
            each.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        for each in self._sockets:
            each.close()
        self._selector.close()

    def _ask(self, port: int, request: bytes) -> socket.socket:
        connection = socket.create_connection(("127.0.0.1", port))
        connection.sendall(request)
        self._selector.register(connection, selectors.EVENT_READ)
        return connection

    def _drain(self) -> None:
        last: dict[Any, bytes] = {}
        while not self._stopping.is_set():
            for key, _ in self._selector.select(timeout=1.0):
                connection: Any = key.fileobj
                data = connection.recv(CHUNK)
                if data:
                    last[connection] = data
                    continue
                self._selector.unregister(connection)
                if not self._stopping.is_set():
                    self._problem = repr(last.get(connection, b"")[-500:])


@contextmanager
def running(
    port: int, model: str, numbers: Sequence[int], tokens: int, stream: bool = True
) -> Iterator[Requests]:
    """`Requests` that are stopped at the end."""
    requests = Requests(port, model, numbers, tokens, stream)
    try:
        yield requests
        requests.check()
    finally:
        requests.stop()


def _body(model: str, number: int, tokens: int, stream: bool) -> bytes:
    body = {
        "model": model, "prompt": f"request {number}: ", "max_tokens": tokens,
        "temperature": 0, "ignore_eos": True, "stream": stream,
    }  # fmt: skip
    data = json.dumps(body).encode()
    head = f"POST {PATH} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(data)}\r\nConnection: close\r\n\r\n".encode() + data
