"""What a start looks like to whoever makes one."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

pytestmark = pytest.mark.timeout(120)

OURS = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} (supervisor|front-end) INFO \S.*")


def test_it_says_only_what_concerns_the_user(tmp_path: Path) -> None:
    log = tmp_path / "log"
    command = [sys.executable, "-m", "tokenrouter", "serve", "--demo", "--port", "0"]
    with (
        log.open("wb") as file,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=file, text=True) as process,
    ):
        try:
            assert process.stdout is not None
            url = process.stdout.readline().split()[-1]
            body = {"text": "Dan", "sampling_params": {"max_new_tokens": 3}}
            assert httpx.post(f"{url}/generate", json=body, timeout=60).is_success
        finally:
            process.terminate()
        assert process.wait(60) == 0
    lines = log.read_text().splitlines()
    assert any("ready in" in line for line in lines)
    assert [line for line in lines if not OURS.fullmatch(line)] == []
