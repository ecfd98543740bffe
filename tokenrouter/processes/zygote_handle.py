"""The supervisor's end of the zygote: start it, give it orders, make sure it is gone."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys

from tokenrouter.processes import protocol
from tokenrouter.processes.directory import SocketDirectory
from tokenrouter.processes.kernel import describe_exit

QUIET = {"TOKENIZERS_PARALLELISM": "false"}
"""Said of every child unless the user has said it: one that has encoded text, and then starts a
process (a grammar's compiler), would else write a warning that is no line of the log."""


class ZygoteHandle:
    """A running zygote, in a session of its own, so that a terminal's Ctrl-C passes it by.

    It shares the lock on ``directory``, which it tidies up should this process be killed.
    """

    def __init__(self, directory: SocketDirectory) -> None:
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        # The same modules must be found there as here, whatever found them here.
        path = os.pathsep.join(os.path.abspath(entry) for entry in sys.path)
        with theirs:
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    "-P",
                    "-m",
                    "tokenrouter.zygote",
                    str(theirs.fileno()),
                    str(os.getpid()),
                    directory.encode(),
                ],
                pass_fds=(theirs.fileno(), directory.lock),
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                env={**QUIET, **os.environ, "PYTHONPATH": path},
            )

    @property
    def pid(self) -> int:
        """Of the process, the parent of all children."""
        return self._process.pid

    def fileno(self) -> int:
        """For a selector: readable when there is a report, or the zygote is gone."""
        return self._channel.fileno()

    def order(self, message: protocol.ToZygote) -> None:
        """Tell the zygote; a dead one is noticed when its report is read."""
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            protocol.send(self._channel, message)

    def report(self) -> protocol.FromZygote | None:
        """Its next report, waiting for it; None: it is gone, with all children."""
        return protocol.receive_report(self._channel)

    def end(self) -> str:
        """Kill what is left of the zygote and its children; how the zygote ended, in words."""
        # Until it is waited for, its process group cannot become anybody else's.
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
        status = self._process.wait()
        self._channel.close()
        return describe_exit(status)
