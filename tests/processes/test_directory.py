"""A place for sockets that nobody else can enter."""

from __future__ import annotations

import socket
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tokenrouter.errors import ConfigError
from tokenrouter.processes.directory import (
    PREFIX,
    SocketDirectory,
    check_directory,
    socket_directory,
)

NAMES = ("small", "large")


def refused(message: str) -> pytest.RaisesExc[ConfigError]:
    """Expect a refusal that says ``message``."""
    return pytest.raises(ConfigError, match=message)


def bind(path: Path) -> None:
    """Leave a socket behind, as a killed process does."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))


def test_a_new_one_is_private_and_goes() -> None:
    with socket_directory(None, NAMES) as made:
        directory = made.path
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700
        bind(directory / "small.peer.sock")
    assert not directory.exists()


def test_a_chosen_one_is_made(tmp_path: Path) -> None:
    chosen = tmp_path / "deep" / "inside"
    with socket_directory(chosen, NAMES) as directory:
        assert directory.path == chosen
        assert stat.S_IMODE(chosen.stat().st_mode) == 0o700
    assert not chosen.exists()


def test_one_that_was_there_stays_without_our_sockets(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    (tmp_path / "notes").touch()
    bind(tmp_path / "other.sock")
    bind(tmp_path / "supervisor.sock")
    with socket_directory(tmp_path, NAMES):
        assert not (tmp_path / "supervisor.sock").exists(), "stale"
        bind(tmp_path / "large.peer.sock")
        bind(tmp_path / "rank-1-3.sock")
    assert {path.name for path in tmp_path.iterdir()} == {"notes", "other.sock"}


def test_one_that_others_can_enter_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o750)
    with (
        refused(r"must be yours and closed to others: chmod 700"),
        socket_directory(tmp_path, NAMES),
    ):
        pass


def test_one_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with (
        refused(r"socket_dir: cannot make .*file: File exists"),
        socket_directory(tmp_path / "file", NAMES),
    ):
        pass


def test_a_look_leaves_no_trace(tmp_path: Path) -> None:
    check_directory(tmp_path / "a" / "b")
    assert not list(tmp_path.iterdir())
    tmp_path.chmod(0o700)
    check_directory(tmp_path)
    assert tmp_path.exists()
    with refused(r"socket_dir: cannot make /proc/x"):
        check_directory(Path("/proc/x"))


def test_one_in_use_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    with socket_directory(tmp_path, NAMES):
        bind(tmp_path / "supervisor.sock")
        with refused("another deployment uses"), socket_directory(tmp_path, NAMES):
            pass
        assert (tmp_path / "supervisor.sock").exists()
    with socket_directory(tmp_path, NAMES):
        pass


def test_one_is_in_use_while_any_process_has_inherited_it(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    with socket_directory(tmp_path, NAMES) as directory:
        heir = subprocess.Popen(["sleep", "60"], pass_fds=[directory.lock])
    try:
        with refused("another deployment uses"), socket_directory(tmp_path, NAMES):
            pass
    finally:
        heir.kill()
        heir.wait()
    with socket_directory(tmp_path, NAMES):
        pass


@pytest.fixture
def short_path() -> Iterator[Path]:
    """pytest's own is too long for a socket in a directory in it."""
    with tempfile.TemporaryDirectory() as path:
        yield Path(path)


def test_what_dead_deployments_left_is_swept_and_nothing_else(
    short_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tmp_path = short_path
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with socket_directory(None, NAMES) as living:
        bind(living.path / "supervisor.sock")
        dead, foreign, open_to_all = (tmp_path / f"{PREFIX}{name}" for name in "abc")
        for path in (dead, foreign, open_to_all):
            path.mkdir(0o700)
            bind(path / "supervisor.sock")
        (foreign / "thesis.tex").touch()
        open_to_all.chmod(0o755)
        (tmp_path / f"{PREFIX}d").symlink_to(open_to_all)
        with socket_directory(None, NAMES):
            assert not dead.exists()
            assert foreign.exists() and open_to_all.exists()
            assert (living.path / "supervisor.sock").exists()


def test_it_can_be_told_to_another_process(tmp_path: Path) -> None:
    directory = SocketDirectory(tmp_path, NAMES, 3, False)
    assert SocketDirectory.decode(directory.encode()) == directory


def test_long_names_do_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", "")
    with refused("UNIX socket's path 107 at most"), socket_directory(None, ("n" * 100,)):
        pass
