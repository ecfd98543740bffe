"""Starts a server for a benchmark, in a process of its own, and stops it."""

from __future__ import annotations

import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import yaml

READY_S = 120.0


@contextmanager
def served(config: Mapping[str, Any]) -> Iterator[str]:
    """The URL of a server with ``config``, as ``tokenrouter serve --config`` reads it."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "config.yaml"
        path.write_text(yaml.safe_dump({**config, "port": port, "log_level": "warning"}))
        command = [sys.executable, "-m", "tokenrouter.launch_server", "--config", str(path)]
        server = subprocess.Popen(command)
        try:
            url = f"http://127.0.0.1:{port}"
            _wait(url, server)
            yield url
        finally:
            server.terminate()
            server.wait(timeout=30)


def _wait(url: str, server: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + READY_S
    while time.monotonic() < deadline:
        if server.poll() is not None:
            sys.exit(f"the server ended with status {server.returncode}")
        try:
            if httpx.get(f"{url}/health", timeout=5).status_code == 200:
                return
        except httpx.TransportError:
            time.sleep(0.2)
    sys.exit(f"the server was not ready after {READY_S:.0f} s")
