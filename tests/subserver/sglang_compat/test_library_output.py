"""Progress bars and transformers' own handler."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.timeout(60)

SCRIPT = """
import logging, sys
from tqdm.auto import tqdm
from tokenrouter.processes import logs
from tokenrouter.subserver.sglang_compat.library_output import redirect_library_output

class Derived(tqdm):
    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)

transformers = logging.getLogger("transformers")
transformers.addHandler(logging.StreamHandler(sys.stderr))
transformers.propagate = False
logs.set_up("m", sys.argv[1])
redirect_library_output()
redirect_library_output()
for kind in (tqdm, Derived):
    assert sum(kind([1, 2, 3], desc="Loading", disable=False)) == 6
assert list(tqdm([1], desc="hidden", disable=True)) == [1]
transformers.warning("odd")
"""


def said(level: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, level], capture_output=True, text=True, check=True
    )
    assert done.stdout == ""
    return [line.split(" m ", 1)[1] for line in done.stderr.splitlines()]


def test_they_are_silent_unless_asked_for() -> None:
    assert said("info") == ["WARNING odd"]


def test_at_debug_they_are_log_lines() -> None:
    lines = said("debug")
    bars = [line for line in lines if line.startswith("DEBUG Loading: ")]
    assert len(bars) >= 4
    assert any("100%" in line for line in bars)
    assert [line for line in lines if line not in bars] == ["WARNING odd"]
