"""The files in launch/: they must not rot, though no test has the GPUs that they are for."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.configuration.qwen3 import SHAPES, qwen3_folder
from tokenrouter.config import load
from tokenrouter.configuration.examine import GIB, examine
from tokenrouter.configuration.machine import Machine

pytestmark = pytest.mark.timeout(60)

ROOT = Path(__file__).parent.parent
FILES = sorted((ROOT / "launch").glob("*.yaml"))


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    for size in SHAPES:
        qwen3_folder(folder, size)
    return folder


def test_the_pairs_of_the_paper_are_there() -> None:
    assert [path.stem for path in FILES] == ["qwen3-0.6b-32b", "qwen3-1.7b-8b", "qwen3-4b-8b"]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_file_fits_the_machine_it_is_for(path: Path, models: Path) -> None:
    names = [size.upper() for size in path.stem.removeprefix("qwen3-").split("-")]
    paths = {
        member: {"model_path": models / f"Qwen3-{name}"}
        for member, name in zip(("small", "large"), names, strict=True)
    }
    config = load(path, {"port": 0, "models": paths}, {})
    found = examine(config, Machine(64 * GIB, (80 * GIB, 80 * GIB)))
    assert (found.problems, found.warnings) == ([], [])
    small, large = found.members
    assert (small.gpus, large.gpus) == ((0,), (0, 1))
    assert small.pool_tokens == large.pool_tokens == 131072
    # Room for activations and CUDA graphs.
    assert sum(member.fraction or 1 for member in found.members) <= 0.9


def script(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(ROOT / "launch" / "qwen3.sh"), *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHON": sys.executable, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_script_finds_the_models(models: Path) -> None:
    flags = ("--gpus", "2", "--gpu-gib", "80", "--port", "0")
    done = script("check", "1.7b-8b", *flags, MODELS=str(models))
    assert done.returncode == 0, done.stderr
    assert "GPU 1: about " in done.stdout
    done = script("check", "1.7b-8b", *flags, MODELS="/nowhere")
    assert done.returncode == 2
    assert "/nowhere/Qwen3-1.7B does not exist" in done.stderr
    assert "/nowhere/Qwen3-8B does not exist" in done.stderr


def test_the_script_takes_a_router(models: Path, tmp_path: Path) -> None:
    router = tmp_path / 'a "router".pt'
    router.touch()
    flags = ("--gpus", "2", "--gpu-gib", "80", "--port", "0")
    done = script("check", "4b-8b", *flags, MODELS=str(models), ROUTER=str(router))
    assert done.returncode == 0, done.stderr
    assert "algorithm r2r, " in done.stdout, "at the threshold that is saved in it"
    flags = (*flags, "--router-threshold", "0.4")
    done = script("check", "4b-8b", *flags, MODELS=str(models), ROUTER=str(router))
    assert "algorithm r2r at 0.4, " in done.stdout
    done = script("check", "4b-8b", *flags, MODELS=str(models), ROUTER="/nowhere.pt")
    assert done.returncode == 2
    assert "/nowhere.pt does not exist" in done.stderr


@pytest.mark.parametrize("arguments", [(), ("serve",), ("serve", "7b-70b"), ("run", "4b-8b")])
def test_the_script_says_how_to_use_it(arguments: tuple[str, ...]) -> None:
    done = script(*arguments)
    assert done.returncode == 2
    assert "launch/qwen3.sh serve 0.6b-32b" in done.stderr


def test_the_help_of_the_demo_tells_of_both_ways_and_installs_nothing(tmp_path: Path) -> None:
    (tmp_path / "launch").mkdir()
    shutil.copy(ROOT / "launch" / "demo.sh", tmp_path / "launch")  # where no installer is
    command = [str(tmp_path / "launch" / "demo.sh"), "--help"]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert 'launch/demo.sh --once "..."' in said
    assert "serve it (options as of `tokenrouter serve`)" in said


def test_a_linked_environment_is_not_cleared(tmp_path: Path) -> None:
    for name in ("launch", "elsewhere"):
        (tmp_path / name).mkdir()
    shutil.copy(ROOT / "launch" / "install.sh", tmp_path / "launch")
    (tmp_path / "pyproject.toml").touch()
    (tmp_path / "elsewhere" / "precious").touch()
    (tmp_path / ".venv").symlink_to("elsewhere")
    done = subprocess.run(
        [str(tmp_path / "launch" / "install.sh")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert ".venv is a link to elsewhere" in done.stderr
    assert (tmp_path / "elsewhere" / "precious").exists()


@pytest.mark.parametrize("gpus", [0, 1, 2])
def test_the_first_example_of_the_manual_can_be_served(
    gpus: int, models: Path, tmp_path: Path
) -> None:
    manual = (ROOT / "README.md").read_text()
    [example] = re.findall(r"```yaml\n# config.yaml\n(.*?)```", manual, re.DOTALL)
    path = tmp_path / "config.yaml"
    path.write_text(example.replace("/models/", f"{models}/"))
    found = examine(load(path, {"port": 0}, {}), Machine(64 * GIB, (80 * GIB,) * gpus))
    assert (found.problems, found.warnings) == ([], [])
    assert list(found.shares) == (["small"] if gpus else [])
