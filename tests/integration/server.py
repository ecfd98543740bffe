"""Starts and stops a deployment for tests, and looks into its members.

    python -m tests.integration.server CONFIG PROGRAMS

runs one in the foreground, with other programs than the real ones (see `mutants`); PROGRAMS
are fields of `processes.plan.Programs` as JSON.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import httpx
import yaml

ROOT = Path(__file__).parents[2]
SETTLE_S = 30.0
MEMBER_PROGRAM = "tokenrouter.subserver.process:run_member"
FOLLOWER_PROGRAM = "tokenrouter.subserver.follower:run_follower"


class Server:
    """A deployment with ``config`` (as in YAML), up to its exit from the context."""

    def __init__(
        self,
        config: Mapping[str, Any],
        member_program: str = MEMBER_PROGRAM,
        follower_program: str = FOLLOWER_PROGRAM,
        **programs: str,
    ) -> None:
        self._folder = tempfile.TemporaryDirectory()
        path = Path(self._folder.name) / "config.yaml"
        path.write_text(yaml.safe_dump({"port": 0, "log_level": "warning", **config}))
        self.log = Path(self._folder.name) / "log"
        self._command = [
            sys.executable, "-m", "tests.integration.server", str(path),
            json.dumps({"member": member_program, "follower": follower_program, **programs}),
        ]  # fmt: skip

    def __enter__(self) -> Server:
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                self._command, cwd=ROOT, stdout=subprocess.PIPE, stderr=log,
                env={**os.environ, "PYTHONWARNINGS": "default"},
            )  # fmt: skip
        assert self._process.stdout is not None
        first = self._process.stdout.readline().decode().strip()
        if not first.startswith("http"):
            self._process.wait(timeout=30)
            raise RuntimeError(f"no server: {first}\n{self.log.read_text()}")
        self.url = first
        self.client = httpx.Client(base_url=first, timeout=120)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._folder.cleanup()

    def stop(self) -> None:
        """End the deployment; its log is complete then."""
        self.client.close()
        self._process.terminate()
        self._process.wait(timeout=30)

    def generate(self, **body: Any) -> Any:
        """POST /generate; the decoded answer."""
        answer = self.client.post("/generate", json=body)
        answer.raise_for_status()
        return answer.json()

    def processes(self) -> dict[str, int]:
        """The running processes of the deployment, by name."""
        found = {"supervisor": self._process.pid}
        parents = {self._process.pid}
        for _ in range(2):  # the zygote, and its children
            parents = {pid for parent in parents for pid in children(parent)}
            for pid in parents:
                with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has ended
                    found[Path(f"/proc/{pid}/cmdline").read_text().strip("\0")] = pid
        return {name.rpartition("::")[2]: pid for name, pid in found.items()}

    def exit_status(self, timeout: float) -> int:
        """Of the supervisor, which ends by itself within ``timeout`` seconds."""
        return self._process.wait(timeout)

    def states(self) -> list[dict[str, Any]]:
        """Every member's state, as /get_server_info shows it."""
        info = self.client.get("/get_server_info").json()
        return [model["state"] for model in info["models"]]

    def assert_clean(self, after_deaths: bool = False) -> None:
        """Every pool and table is as it was before the first request, within seconds.

        What a dead member had sent may have been dropped as stale.
        """
        deadline = time.monotonic() + SETTLE_S
        while True:
            states = self.states()
            used = [
                state
                for state in states
                if state["visits"] or state["requests"] or state["live"]
                or state["free_tokens"] != state["pool_tokens"]
            ]  # fmt: skip
            if not used:
                break
            assert time.monotonic() < deadline, f"still in use: {used}"
            time.sleep(0.1)
        for state in states:
            assert state["expired_waits"] == 0, state
            assert set(state["dropped"]) <= ({"stale"} if after_deaths else set()), state


def children(pid: int) -> list[int]:
    """Processes that a process (one of a single thread, or its main thread) has started."""
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def main() -> None:
    from tokenrouter.config import load
    from tokenrouter.processes import logs
    from tokenrouter.processes.plan import Programs
    from tokenrouter.supervisor import serve

    config = load(Path(sys.argv[1]))
    logs.set_up("supervisor", config.log_level, config.log_format)
    programs = Programs(**json.loads(sys.argv[2]))
    sys.exit(serve(config, lambda url: print(url, flush=True), programs))


if __name__ == "__main__":
    main()
