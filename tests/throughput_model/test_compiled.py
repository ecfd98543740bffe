"""Where machine code is kept; each case in a process and a copy of a module of its own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

MODULE = """
from tokenrouter.throughput_model.compiled import compiled

@compiled
def twice(x: int) -> int:
    return 2 * x

assert twice(21) == 42
print(twice.stats.cache_path)
print(sum(twice.stats.cache_hits.values()))
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """With a module ``doubled``, a home, and a file where no folder can be made."""
    (tmp_path / "doubled.py").write_text(MODULE)
    (tmp_path / "home").mkdir()
    (tmp_path / "file").touch()
    return tmp_path


def run(folder: Path, home: str) -> tuple[str, int]:
    """Where a process keeps its machine code, and how often it took code that was kept."""
    own = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "HOME": str(folder / home)}
    hidden = ("NUMBA_CACHE_DIR", "XDG_CACHE_HOME")
    answer = subprocess.run(
        [sys.executable, str(folder / "doubled.py")],
        env={key: each for key, each in os.environ.items() if key not in hidden} | own,
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert answer.returncode == 0, answer.stderr
    place, hits = answer.stdout.split()
    return place, int(hits)


def test_the_next_process_need_not_compile(folder):
    assert run(folder, "home") == (str(folder / "__pycache__"), 0)
    assert run(folder, "home") == (str(folder / "__pycache__"), 1)


def test_code_of_a_read_only_package_is_kept_in_the_home(folder):
    (folder / "__pycache__").touch()
    (place, _), (again, hits) = run(folder, "home"), run(folder, "home")
    assert place == again
    assert Path(place).is_relative_to(folder / "home")
    assert hits == 1


def test_a_process_that_can_write_nowhere_compiles_for_itself(folder):
    (folder / "__pycache__").touch()
    assert run(folder, "file") == ("None", 0)


@pytest.mark.parametrize(("suffix", "left"), [(".nbi", 20), (".nbc", 0)])
def test_a_file_that_is_cut_short_is_compiled_anew_and_replaced(folder, suffix, left):
    place, _ = run(folder, "home")
    (file,) = Path(place).glob(f"*{suffix}")
    file.write_bytes(file.read_bytes()[:left])
    assert run(folder, "home") == (place, 0)
    assert run(folder, "home") == (place, 1)


FULL = """
import errno
from numba.core.caching import IndexDataCacheFile

def full(*_):
    raise OSError(errno.ENOSPC, "No space left on device")

IndexDataCacheFile._open_for_write = full
"""


def test_a_full_disk_is_survived(folder):
    (folder / "doubled.py").write_text(FULL + MODULE)
    place, hits = run(folder, "home")
    assert hits == 0
    assert not list(Path(place).glob("*.nb?"))
