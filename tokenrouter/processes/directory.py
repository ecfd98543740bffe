"""The directory of a deployment's sockets, which nobody but its user may enter.

Frames are checked on arrival all the same, and none of them can run code. A lock on the
directory, held by the supervisor, the zygote and all children, says that it is in use: it ends
with the last of them, however they end.
"""

from __future__ import annotations

import fcntl
import logging
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec

from tokenrouter.configuration.preflight import check_socket_paths
from tokenrouter.errors import ConfigError

SUPERVISOR = "supervisor.sock"
SHARED = (SUPERVISOR, "http.sock", "tokenizer.sock", "detokenizer.sock", "planner.sock")
RANKS = "rank-*-*.sock"
OF_A_MEMBER = ("input", "peer")
PREFIX = "tokenrouter-run-"
"""Of the directories that are made here, in the system's temporary one."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SocketDirectory:
    """A locked one. ``lock`` is a descriptor; ``stays``: it was there before, and remains."""

    path: Path
    names: tuple[str, ...]
    lock: int
    stays: bool

    @classmethod
    def decode(cls, text: str) -> SocketDirectory:
        """From what `encode` gave, in a process that has inherited the lock."""
        return msgspec.json.decode(text, type=cls, dec_hook=lambda kind, value: kind(value))

    def encode(self) -> str:
        """As JSON."""
        return msgspec.json.encode(self, enc_hook=str).decode()

    def clear(self) -> None:
        """Remove what the deployment has put there, and the directory if it was made for it."""
        if self.stays:
            _remove_sockets(self.path, self.names)
        else:
            shutil.rmtree(self.path, ignore_errors=True)


@contextmanager
def socket_directory(chosen: Path | None, names: tuple[str, ...]) -> Iterator[SocketDirectory]:
    """A private directory for the time of the context: ``chosen``, or a new one.

    What deployments left behind that were killed together with everything that could have
    tidied up is removed first.

    Raises:
        ConfigError: ``chosen`` is not private or in use, or socket paths would be too long.
    """
    existed = chosen is not None and chosen.exists()
    if chosen:
        path, lock = chosen, _take(chosen)
        _remove_sockets(path, names)
    else:
        sweep(Path(tempfile.gettempdir()))
        path, lock = _make()
    directory = SocketDirectory(path, names, lock, existed)
    try:
        check_socket_paths(path, names)
        yield directory
    finally:
        directory.clear()
        os.close(lock)


def check_directory(directory: Path) -> None:
    """Make sure that a deployment could take ``directory`` now, and leave it.

    Raises:
        ConfigError: it is not private, or in use.
    """
    try:
        made = [each for each in (directory, *directory.parents) if not each.exists()]
    except OSError as error:
        raise ConfigError(f"socket_dir: cannot make {directory}: {error.strerror}") from error
    lock = _take(directory)
    for each in made:
        each.rmdir()
    os.close(lock)


def sweep(folder: Path) -> None:
    """Remove what dead deployments left in ``folder``: private directories with sockets alone."""
    for path in folder.glob(f"{PREFIX}*"):
        try:
            lock = _lock(path)
            if lock is None:
                continue
            try:
                if _is_private(path) and all(each.is_socket() for each in path.iterdir()):
                    logger.info("removing %s, left by a deployment that was killed", path)
                    shutil.rmtree(path)
            finally:
                os.close(lock)
        except OSError as error:
            logger.debug("leaving %s alone: %s", path, error)


def _make() -> tuple[Path, int]:
    while True:
        path = Path(tempfile.mkdtemp(prefix=PREFIX))
        # Between the two lines another deployment may take it for an abandoned one.
        lock = _lock(path) if path.exists() else None
        if lock is not None and path.exists():
            return path, lock


def _take(directory: Path) -> int:
    """Lock a directory that the user chose; make it if it is not there."""
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not _is_private(directory):
            raise ConfigError(
                f"socket_dir: {directory} must be yours and closed to others: chmod 700 {directory}"
            )
        lock = _lock(directory)
    except OSError as error:
        raise ConfigError(f"socket_dir: cannot make {directory}: {error.strerror}") from error
    if lock is None:
        raise ConfigError(
            f"socket_dir: another deployment uses {directory}; stop it or choose another"
        )
    return lock


def _is_private(directory: Path) -> bool:
    status = directory.lstat()
    mine = status.st_uid == os.getuid() and not status.st_mode & 0o077
    return mine and stat.S_ISDIR(status.st_mode)


def _lock(directory: Path) -> int | None:
    """A descriptor that locks a directory; None: it is locked already.

    Raises:
        OSError: it cannot be opened.
    """
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        if isinstance(error, BlockingIOError):
            return None
        raise
    return descriptor


def _remove_sockets(directory: Path, names: tuple[str, ...]) -> None:
    """Remove this deployment's sockets only: the directory may hold others' too."""
    members = [f"{name}.{port}.sock" for name in names for port in OF_A_MEMBER]
    for socket_name in (*SHARED, *members):
        (directory / socket_name).unlink(missing_ok=True)
    for path in directory.glob(RANKS):
        path.unlink(missing_ok=True)
