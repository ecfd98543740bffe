"""Files of a run: whole or not there, and only of the run that made them."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from safetensors import SafetensorError

from tokenrouter.errors import ConfigError, MeasurementError
from tokenrouter.router_training.store import Store


class Killed(BaseException):
    """Ends a program as a kill does: nothing is cleaned up."""


def test_what_is_written_is_there_again(tmp_path: Path) -> None:
    Store(tmp_path, {"a": 1}).write_arrays("x/0", {"one": torch.arange(3)})
    assert Store(tmp_path, {"a": 1}).arrays("x/0")["one"].tolist() == [0, 1, 2]


def test_a_kill_while_writing_leaves_nothing_that_counts(tmp_path: Path) -> None:
    store = Store(tmp_path, {})

    def half(path: Path) -> None:
        path.write_text("half")
        raise Killed

    with pytest.raises(Killed):
        store.write("a/b", half)
    assert not store.has("a/b")
    store.write_text("a/b", "whole")
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["b"]


def test_other_inputs_are_refused_by_name(tmp_path: Path) -> None:
    Store(tmp_path, {"prompts": "p", "--dtype": "auto", "template": {"a": 1}})
    Store(tmp_path, {"prompts": "p", "--dtype": "auto", "template": {"a": 1}})
    with pytest.raises(ConfigError, match="of a run with other prompts, --dtype; give"):
        Store(tmp_path, {"prompts": "q", "--dtype": "bfloat16", "template": {"a": 1}})


def test_a_folder_that_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=r"--out: .*file: cannot be used"):
        Store(tmp_path / "file", {})
    (tmp_path / "manifest.json").write_text("{")
    with pytest.raises(ConfigError, match="cannot be used"):
        Store(tmp_path, {})


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)),
        SafetensorError(f"Error while serializing: I/O error: {os.strerror(errno.ENOSPC)}"),
    ],
)
def test_a_full_disk_is_told_as_such(tmp_path: Path, error: Exception) -> None:
    store = Store(tmp_path, {})
    store.write_text("a", "before")

    def full(path: Path) -> None:
        path.write_text("half")
        raise error

    with pytest.raises(MeasurementError, match="No space left on device; once it can be"):
        store.write("a", full)
    assert store.path("a").read_text() == "before"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "manifest.json"]


def test_torch_does_not_say_that_the_disk_is_full(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def fails(_: Path) -> None:
        raise RuntimeError("[enforce fail at inline_container.cc:672] . unexpected pos 704 vs 598")

    store = Store(tmp_path, {})
    with pytest.raises(RuntimeError, match="unexpected pos"):
        store.write("a", fails)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=0))
    with pytest.raises(MeasurementError, match="No space left on device"):
        store.write("a", fails)


def test_a_mistake_is_no_full_disk(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError):
        Store(tmp_path, {}).write("a", lambda _: 1 / 0)
