"""The directory of a deployment's sockets, which nobody but its user may enter.

Frames are checked on arrival all the same, and none of them can run code.
"""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tokenrouter.configuration.preflight import check_socket_paths
from tokenrouter.errors import ConfigError

SUPERVISOR = "supervisor.sock"
SHARED = (SUPERVISOR, "http.sock", "tokenizer.sock", "detokenizer.sock")
OF_A_MEMBER = ("input", "peer")
RANKS = "rank-*-*.sock"


@contextmanager
def socket_directory(chosen: Path | None, names: tuple[str, ...]) -> Iterator[Path]:
    """A private directory for the time of the context: ``chosen``, or a new one.

    One that was there before stays, without the sockets.

    Raises:
        ConfigError: ``chosen`` is not private or in use, or socket paths would be too long.
    """
    existed = chosen is not None and chosen.exists()
    directory = _prepare(chosen, names) if chosen else Path(tempfile.mkdtemp(prefix="tokenrouter-"))
    try:
        check_socket_paths(directory, names)
        yield directory
    finally:
        if existed:
            _remove_sockets(directory, names)
        else:
            shutil.rmtree(directory, ignore_errors=True)


def _prepare(directory: Path, names: tuple[str, ...]) -> Path:
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = directory.stat()
    except OSError as error:
        raise ConfigError(f"socket_dir: cannot make {directory}: {error.strerror}") from error
    if status.st_uid != os.getuid() or status.st_mode & 0o077:
        raise ConfigError(
            f"socket_dir: {directory} must be yours and closed to others: chmod 700 {directory}"
        )
    if _answers(directory / SUPERVISOR):
        raise ConfigError(
            f"socket_dir: another deployment uses {directory}; stop it or choose another"
        )
    _remove_sockets(directory, names)
    return directory


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(os.fspath(path))
        except OSError:
            return False
    return True


def _remove_sockets(directory: Path, names: tuple[str, ...]) -> None:
    """Remove this deployment's sockets only: the directory may hold others' too."""
    members = [f"{name}.{port}.sock" for name in names for port in OF_A_MEMBER]
    for socket_name in (*SHARED, *members):
        (directory / socket_name).unlink(missing_ok=True)
    for path in directory.glob(RANKS):
        path.unlink(missing_ok=True)
