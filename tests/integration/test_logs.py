"""A deployment goes on serving, and ends cleanly, whatever becomes of its stderr."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
import yaml

from tests.integration.server import ROOT
from tests.integration.test_metrics import CONFIG, Scrape

REQUESTS = 40
"""Their lines are more than the pipe holds."""
PIPE_BYTES = 4096


SLOW = [pytest.param(trouble, marks=pytest.mark.slow) for trouble in ("closed", "full disk")]


@pytest.mark.parametrize("trouble", ["stuck", *SLOW])
def test_stderr_that_takes_nothing(trouble: str, tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(yaml.safe_dump({**CONFIG, "port": 0, "log_level": "debug"}))
    reading, writing = os.pipe()
    fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    if trouble == "full disk":
        os.close(writing)
        writing = os.open("/dev/full", os.O_WRONLY)
    program = ["tests.integration.server", str(config), "{}"]
    command = [sys.executable, "-m", *program]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=writing)
    os.close(writing)
    try:
        if trouble == "closed":
            os.close(reading)
        assert process.stdout is not None
        url = process.stdout.readline().decode().strip()
        assert url.startswith("http")
        with httpx.Client(base_url=url, timeout=10) as client:
            for number in range(REQUESTS):
                body = {"model": "demo", "prompt": f"prompt {number}", "max_tokens": 4}
                assert client.post("/v1/completions", json=body).status_code == 200
            seen = Scrape(client.get("/metrics").text)
        assert seen.value("num_requests_total", model_name="demo", outcome="length") == REQUESTS
        if trouble != "stuck":  # there, the thread still waits, and the queue holds them all
            assert seen.value("log_lines_dropped_total", process="front-end") >= REQUESTS
        process.terminate()
        assert process.wait(20) == 0
    finally:
        process.kill()
        process.wait(10)
        assert process.stdout is not None
        process.stdout.close()
        if trouble != "closed":
            os.close(reading)
