"""Starts a server for a benchmark, ours or stock SGLang's, in processes of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import psutil
import yaml

from tokenrouter.ipc.free_ports import free_ports

ROOT = Path(__file__).parents[1]
READY_S = 180.0


class Server:
    """A running server; ``startup_s``: from its start to a healthy answer."""

    def __init__(self, port: int, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.port = port
        self._started = time.monotonic()
        self._process = subprocess.Popen(
            command, cwd=ROOT, env={**os.environ, **environment}, start_new_session=True
        )
        try:
            self.startup_s = self._wait()
        except BaseException:
            self.stop(0.0)
            raise

    def cpu_seconds(self) -> dict[str, float]:
        """CPU time of each of its processes so far, by title; to the nanosecond."""
        spent: dict[str, float] = {}
        for each in self._processes():
            try:
                title, seconds = _title(each), time.clock_gettime(_cpu_clock(each.pid))
            except (psutil.NoSuchProcess, OSError):  # it has ended
                continue
            spent[title] = spent.get(title, 0.0) + seconds
        return spent

    def pid_of(self, title: str) -> int:
        """The process with this title; 0 if there is none at the moment."""
        for each in self._processes():
            try:
                if _title(each) == title and each.status() != psutil.STATUS_ZOMBIE:
                    return each.pid
            except psutil.NoSuchProcess:
                continue
        return 0

    def _processes(self) -> list[psutil.Process]:
        root = psutil.Process(self._process.pid)
        return [root, *root.children(recursive=True)]

    def signal(self, number: int) -> None:
        """To every process of the server."""
        os.killpg(self._process.pid, number)

    def stop(self, patience: float) -> None:
        """End it; SIGTERM is given ``patience`` seconds."""
        self.signal(signal.SIGCONT)
        self._process.terminate()
        try:
            self._process.wait(timeout=patience)
        except subprocess.TimeoutExpired:
            self.signal(signal.SIGKILL)
            self._process.wait()

    def _wait(self) -> float:
        while time.monotonic() < self._started + READY_S:
            if self._process.poll() is not None:
                sys.exit(f"the server ended with status {self._process.returncode}")
            try:
                if httpx.get(f"{self.url}/health", timeout=5).status_code == 200:
                    return time.monotonic() - self._started
            except httpx.TransportError:
                time.sleep(0.05)
        self.stop(0.0)
        sys.exit(f"the server was not ready after {READY_S:.0f} s")


@contextmanager
def served(
    config: Mapping[str, Any],
    nice: int = 0,
    module: str = "tokenrouter.launch_server",
    **environment: str,
) -> Iterator[Server]:
    """A server with ``config``, as ``tokenrouter serve --config`` reads it.

    Args:
        nice: added to the niceness of its processes; negative takes privileges.
        module: what is run instead, with the same arguments.
    """
    [port] = free_ports(1)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "config.yaml"
        path.write_text(yaml.safe_dump({"log_level": "warning", **config, "port": port}))
        command = ["nice", "-n", str(nice), sys.executable, "-m", module, "--config", str(path)]
        server = Server(port, command, environment)
        try:
            yield server
        finally:
            server.stop(30.0)


@contextmanager
def stock(model: Path, *arguments: str, **environment: str) -> Iterator[Server]:
    """Stock ``sglang.launch_server`` with our patches for CPUs."""
    [port] = free_ports(1)
    command = [
        sys.executable, "-m", "tests.integration.stock_server", "--model-path", str(model),
        "--port", str(port), "--device", "cpu", "--attention-backend", "torch_native",
        "--log-level", "warning", *arguments,
    ]  # fmt: skip
    server = Server(port, command, environment)
    try:
        yield server
    finally:
        server.stop(0.0)


def _title(process: psutil.Process) -> str:
    """What a process calls itself, without the server's name; else the module it runs."""
    words = process.cmdline() or [process.name()]
    if "::" in words[0]:
        return words[0].strip().rpartition("::")[2]
    return words[words.index("-m") + 1].rpartition(".")[2] if "-m" in words else words[-1]


def _cpu_clock(pid: int) -> int:
    """Linux's id of the clock of a process's CPU time: see clock_getcpuclockid(3)."""
    return (~pid << 3) | 2
