"""The zygote: imports what children need once, forks them, and reports their ends.

    python -m tokenrouter.zygote FD SUPERVISOR_PID DIRECTORY

Started by the supervisor, from which it takes orders over the inherited socket FD
(`processes.protocol`). On a GPU, where imports initialise the device, it imports nothing and
every child does so for itself. It must be single-threaded when it forks: a lock that another
thread holds at that moment stays locked in the child for ever. If the supervisor is killed,
the zygote ends the children and removes what is left in the socket DIRECTORY (as JSON).
"""

from __future__ import annotations

import gc
import logging
import os
import selectors
import signal
import socket
import sys
import time
from pathlib import Path

import msgspec

from tokenrouter.config import Config
from tokenrouter.processes import children, kernel, logs, titles
from tokenrouter.processes.directory import SocketDirectory
from tokenrouter.processes.protocol import (
    Alive,
    ChildSpec,
    Exited,
    Forked,
    Launch,
    Prepared,
    PrepareFailed,
    Probe,
    Signal,
    Start,
    receive_order,
    send,
)

logger = logging.getLogger(__name__)


def main() -> None:
    """Serve one supervisor until it is gone."""
    descriptor, supervisor = int(sys.argv[1]), int(sys.argv[2])
    directory = SocketDirectory.decode(sys.argv[3])
    # Importing takes seconds, in which nobody looks whether the supervisor has hung up.
    signal.signal(signal.SIGTERM, lambda number, frame: _abandon(directory))
    try:
        kernel.die_with(supervisor, signal.SIGTERM)
    except SystemExit:
        _abandon(directory)
    channel = socket.socket(fileno=descriptor)
    order = receive_order(channel)
    if isinstance(order, Launch):
        config = Config.model_validate_json(order.config)
        titles.entitle(config, "zygote")
        logs.set_up("zygote", config.log_level, config.log_format, single_threaded=True)
        if _prepare(order, config, channel):
            kernel.outlive_parent()  # from now on, its end of the channel tells
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            Zygote(channel, order, config).run()
    _abandon(directory)


def _abandon(directory: SocketDirectory) -> None:
    """End, after the supervisor, what it cannot end any more."""
    directory.clear()
    children.leave(0)


def _prepare(order: Launch, config: Config, channel: socket.socket) -> bool:
    """Import what the children share, and say so; False if that failed."""
    start = time.monotonic()
    if order.shared:
        try:
            _import_all(order, config)
        except Exception as error:  # noqa: BLE001 - told and logged; nothing is forked
            send(channel, PrepareFailed(children.log_failed_start(error)))
            return False
    threads = running_threads()
    if len(threads) > 1:
        logger.warning("forking with %d threads running: %s", len(threads), ", ".join(threads))
    send(channel, Prepared(time.monotonic() - start, threads))
    return True


def _import_all(order: Launch, config: Config) -> None:
    # A BLAS pool would make this process multi-threaded before it forks.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    gc.disable()
    children.load(order.prepare)(config)
    for spec in order.children:
        children.load(spec.entry)
    gc.enable()
    gc.freeze()  # what is imported stays shared with the children, page by page


def running_threads() -> tuple[str, ...]:
    """Names of this process's threads, as the kernel knows them."""
    return tuple(
        (task / "comm").read_text().strip() for task in sorted(Path("/proc/self/task").iterdir())
    )


class Zygote:
    """The loop of a zygote that has imported everything."""

    def __init__(self, channel: socket.socket, launch: Launch, config: Config) -> None:
        self._channel = channel
        self._names: dict[int, str] = {}
        self._launch, self._config = launch, config
        self._wake, self._waker = socket.socketpair()
        self._waker.setblocking(False)

    def run(self) -> None:
        """Fork the children, then reap and signal them until the supervisor hangs up.

        Then they are killed; none is left when this returns.
        """
        try:
            self._serve()
        except (BrokenPipeError, ConnectionResetError):
            logger.error("the supervisor is gone: ending every process")
        for pid in self._names:
            os.kill(pid, signal.SIGKILL)
        for pid in self._names:
            os.waitpid(pid, 0)

    def _serve(self) -> None:
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        signal.set_wakeup_fd(self._waker.fileno(), warn_on_full_buffer=False)
        for spec in self._launch.children:
            if spec.wave == 0:
                self._fork(spec)
        with selectors.DefaultSelector() as selector:
            selector.register(self._channel, selectors.EVENT_READ)
            selector.register(self._wake, selectors.EVENT_READ)
            while True:
                for key, _ in selector.select():
                    if key.fileobj is self._wake:
                        self._wake.recv(4096)
                        self._reap()
                    else:
                        self._obey()

    def _fork(self, spec: ChildSpec) -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        zygote = os.getpid()
        pid = os.fork()
        if pid == 0:
            for each in (self._channel, self._wake, self._waker):
                each.close()
            children.leave(children.run(spec, self._config, self._launch, zygote))
        self._names[pid] = spec.name
        send(self._channel, Forked(spec.name, pid))

    def _reap(self) -> None:
        while self._names:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            if name := self._names.pop(pid, None):
                send(self._channel, Exited(name, pid, os.waitstatus_to_exitcode(status)))

    def _obey(self) -> None:
        """Carry out one order.

        Raises:
            BrokenPipeError: the supervisor is gone.
        """
        order = receive_order(self._channel)
        if order is None:
            raise BrokenPipeError
        if isinstance(order, Signal):
            for pid, name in self._names.items():
                if order.names is None or name in order.names:
                    os.kill(pid, order.number)
        elif isinstance(order, Start):
            if order.ports is not None:
                self._launch = msgspec.structs.replace(self._launch, ports=order.ports)
            for spec in order.children:
                self._fork(spec)
        elif isinstance(order, Probe):
            send(self._channel, Alive(order.number))


if __name__ == "__main__":
    main()
