"""What there is to run on."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tokenrouter.configuration import machine, parallel
from tokenrouter.configuration.machine import MIB, chosen_machine, this_machine
from tokenrouter.errors import ConfigError

pytestmark = pytest.mark.timeout(20)


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with two GPUs, and a tool that says how large they are."""
    for name in ("0000:01:00.0", "0000:02:00.0"):
        (tmp_path / "gpus" / name).mkdir(parents=True)
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\necho 1000; echo 2000\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setattr(
        machine, "visible_gpus", lambda visible: parallel.visible_gpus(visible, tmp_path / "gpus")
    )
    return tool


@pytest.mark.parametrize(
    ("visible", "sizes"),
    [
        (None, (1000, 2000)),
        ("1", (2000,)),
        ("1,0", (2000, 1000)),
        ("", ()),
        ("GPU-8932f937", (None,)),
    ],
)
def test_gpus_as_cuda_numbers_them(
    driver: Path, monkeypatch: pytest.MonkeyPatch, visible: str | None, sizes: tuple[int, ...]
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert this_machine().gpus == tuple(size and size * MIB for size in sizes)


@pytest.mark.parametrize("script", ["#!/bin/sh\nexit 9\n", "#!/bin/sh\necho broken\n", "junk"])
def test_a_tool_that_fails_leaves_sizes_unknown(
    driver: Path, monkeypatch: pytest.MonkeyPatch, script: str
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    driver.write_text(script)
    assert this_machine().gpus == (None, None)


def test_a_container_that_hides_the_folder_of_the_driver(
    driver: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.rmtree(driver.parent / "gpus")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert this_machine().gpus == (1000 * MIB, 2000 * MIB)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    assert this_machine().gpus == (2000 * MIB,)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert this_machine().gpus == ()


def test_another_machine_than_this() -> None:
    assert chosen_machine(2, 80).gpus == (80 * 1024 * MIB,) * 2
    assert chosen_machine(1, None).gpus == (None,)
    assert chosen_machine(None, None) == this_machine()
    with pytest.raises(ConfigError, match="--gpu-gib: say of how many GPUs"):
        chosen_machine(None, 80)
    with pytest.raises(ConfigError, match="--gpus: must be 0 or more, got -1"):
        chosen_machine(-1, None)
    for size in (0, -8, float("inf"), float("nan")):
        with pytest.raises(ConfigError, match="--gpu-gib: must be a number of GiB above 0"):
            chosen_machine(1, size)
