"""The program's end of a deployment of its own: start it, see whether it lives, end it."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import subprocess
import sys
import weakref
from typing import IO, BinaryIO, cast

from tokenrouter.config import Config
from tokenrouter.errors import (
    ConfigError,
    EngineClosedError,
    MemberDeadError,
    StartupError,
    TokenRouterError,
)
from tokenrouter.processes.kernel import describe_exit

STOP_LIMIT_S = 15.0
"""From asking a supervisor to end to killing it; it allows its children less."""
STDERR = 2

logger = logging.getLogger(__name__)


class ServerProcess:
    """A supervisor in a process of its own (`offline.process`), until `end`.

    It is ended too when this object is dropped and when the interpreter exits; and when this
    process is killed, it notices.

    Attributes:
        socket: where its front end answers.
        pid: of the supervisor.

    Raises:
        ConfigError: an address cannot be used.
        StartupError: a process could not start.
    """

    def __init__(self, config: Config) -> None:
        reader, writer = os.pipe()
        with open(reader, "rb") as report:
            try:
                self._process = _start(writer)
            finally:
                os.close(writer)
            self.pid = self._process.pid
            self._end = weakref.finalize(self, _end, self._process, os.getpid())
            try:
                self.socket = _started(self._process, config, report)
            except BaseException:
                self._end()
                raise

    def check(self) -> None:
        """Make sure that it has not ended.

        Raises:
            EngineClosedError: it has.
        """
        if not self._end.alive:
            raise EngineClosedError("the engine was shut down; make a new one")
        if (status := self._process.poll()) is not None:
            raise EngineClosedError(
                f"the engine has ended ({describe_exit(status)}); its log says why"
            )

    def lost(self) -> TokenRouterError:
        """What to raise when a connection to the front end broke."""
        try:
            self.check()
        except EngineClosedError as error:
            return error
        return MemberDeadError("the front end died under the request; ask again")

    def end(self) -> None:
        """Have every process end, and wait for that."""
        self._end()


def _start(report: int) -> subprocess.Popen[bytes]:
    # The same modules must be found there as here, whatever found them here.
    path = os.pathsep.join(os.path.abspath(entry) for entry in sys.path)
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "tokenrouter.offline.process", str(report)],
        pass_fds=(report,),
        stdin=subprocess.PIPE,
        stdout=STDERR,
        start_new_session=True,  # a terminal's Ctrl-C is for the program alone
        env={**os.environ, "PYTHONPATH": path},
    )


def _started(process: subprocess.Popen[bytes], config: Config, report: BinaryIO) -> str:
    """The socket of a front end that answers."""
    order = {"owner": os.getpid(), "config": config.model_dump_json()}
    with contextlib.suppress(BrokenPipeError), cast(IO[bytes], process.stdin) as stdin:
        stdin.write(json.dumps(order).encode())  # a command line everybody could read
    said = report.readline()
    if not said:
        raise StartupError(f"the supervisor {describe_exit(process.wait())}; its log says more")
    answer = json.loads(said)
    if "problems" in answer:
        raise ConfigError(*answer["problems"])
    if "failure" in answer:
        raise StartupError(answer["failure"])
    return str(answer["socket"])


def _end(process: subprocess.Popen[bytes], owner: int) -> None:
    """End a supervisor: it ends its children, and they end with it."""
    if os.getpid() != owner:
        return  # a fork of the program: the engine is its parent's
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(STOP_LIMIT_S)
        except subprocess.TimeoutExpired:
            logger.error("the supervisor does not end; killing it")
            process.kill()
    process.wait()
