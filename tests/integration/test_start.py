"""What a start looks like to whoever makes one."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import httpx
import psutil
import pytest

pytestmark = pytest.mark.timeout(120)

OURS = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} (supervisor|front-end) INFO \S.*")


SECRET = "open-sesame"


def test_it_says_only_what_concerns_the_user_and_no_secret(tmp_path: Path) -> None:
    log = tmp_path / "log"
    flags = ("--demo", "--port", "0", "--api-key", SECRET)
    with (
        log.open("wb") as file,
        subprocess.Popen(
            [sys.executable, "-m", "tokenrouter", "serve", *flags],
            stdout=subprocess.PIPE,
            stderr=file,
            text=True,
        ) as process,
    ):
        try:
            assert process.stdout is not None
            url = process.stdout.readline().split()[-1]
            body = {"text": "Dan", "sampling_params": {"max_new_tokens": 3}}
            key = {"Authorization": f"Bearer {SECRET}"}
            assert httpx.post(f"{url}/generate", json=body, headers=key, timeout=60).is_success
            info = httpx.get(f"{url}/get_server_info", headers=key)
            assert info.is_success
            assert SECRET not in info.text
            family = [psutil.Process(process.pid), *psutil.Process(process.pid).children(True)]
            assert SECRET not in str([each.cmdline() for each in family])
        finally:
            process.terminate()
        assert process.wait(60) == 0
    lines = log.read_text().splitlines()
    assert any("ready in" in line for line in lines)
    assert [line for line in lines if not OURS.fullmatch(line)] == []
    assert SECRET not in log.read_text()
