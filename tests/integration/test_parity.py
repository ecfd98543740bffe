"""``NAME/MEMBER`` writes what stock SGLang writes when it serves that model alone."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.integration.models import DEMO
from tests.integration.server import ROOT, Server
from tokenrouter.demo.task import problems as draw_problems

START_S = 110.0


@pytest.fixture
def stock(tmp_path: Path) -> Iterator[str]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [
        sys.executable, "-m", "tests.integration.stock_server",
        "--model-path", str(DEMO / "large"), "--port", str(port), "--device", "cpu",
        "--dtype", "float32", "--attention-backend", "torch_native", "--max-total-tokens", "20000",
        "--disable-overlap-schedule", "--skip-server-warmup", "--log-level", "warning",
    ]  # fmt: skip
    log = tmp_path / "log"
    with log.open("wb") as output:
        server = subprocess.Popen(
            command, cwd=ROOT, stdout=output, stderr=output, start_new_session=True
        )
    url = f"http://127.0.0.1:{port}"
    deadline = time.monotonic() + START_S
    try:
        while time.monotonic() < deadline:
            assert server.poll() is None, log.read_text()
            try:
                if httpx.get(f"{url}/health", timeout=5).status_code == 200:
                    break
            except httpx.TransportError:
                time.sleep(0.5)
        else:
            pytest.fail(f"stock SGLang did not start:\n{log.read_text()}")
        yield url
    finally:
        os.killpg(server.pid, 9)
        server.wait(timeout=20)


@pytest.mark.timeout(240)
def test_a_member_alone_equals_stock_sglang(demo_server: Server, stock: str) -> None:
    rng_problems = draw_problems("held_out", 9)
    questions = [next(rng_problems).question for _ in range(12)]

    def ask(url: str, model: str, question: str) -> tuple[Any, Any, int]:
        body = {
            "model": model,
            "messages": [{"role": "user", "content": question}],
            "temperature": 0,
            "max_tokens": 300,
        }
        answer = httpx.post(f"{url}/v1/chat/completions", json=body, timeout=60).json()
        choice = answer["choices"][0]
        usage = answer["usage"]["completion_tokens"]
        return choice["message"]["content"], choice["finish_reason"], usage

    with ThreadPoolExecutor(len(questions)) as pool:
        routed = list(pool.map(lambda q: ask(demo_server.url, "demo/large", q), questions))
        alone = list(pool.map(lambda q: ask(stock, "large", q), questions))
    assert routed == alone
    assert len({content for content, _, _ in alone}) == len(questions)
    demo_server.assert_clean()
