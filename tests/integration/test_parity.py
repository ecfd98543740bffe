"""``NAME/MEMBER`` writes what stock SGLang writes when it serves that model alone."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import islice
from typing import Any

import httpx
import pytest

from tests.integration.models import DEMO
from tests.integration.server import ROOT, Server
from tokenrouter.demo.task import problems as draw_problems
from tokenrouter.ipc.free_ports import free_ports

START_S = 110.0


@pytest.fixture(scope="module")
def stock(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    port, rank_port = free_ports(2)
    command = [
        sys.executable, "-m", "tests.integration.stock_server",
        "--model-path", str(DEMO / "large"), "--port", str(port), "--device", "cpu",
        "--nccl-port", str(rank_port),
        "--dtype", "float32", "--attention-backend", "torch_native", "--max-total-tokens", "20000",
        "--disable-overlap-schedule", "--skip-server-warmup", "--log-level", "warning",
    ]  # fmt: skip
    log = tmp_path_factory.mktemp("stock") / "log"
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


RULES: dict[str, dict[str, Any]] = {
    "plain": {},
    "frequency": {"frequency_penalty": 0.7},
    "presence": {"presence_penalty": 1.1},
    "bias": {"logit_bias": {"48": 2.0, "43": -3.0}},
    "minimum": {"min_new_tokens": 40, "stop_token_ids": [32, 10]},
    "regex": {"regex": "[a-f]{3}( [0-9]{2}){2,4}"},
    "schema": {"json_schema": '{"enum": ["left", "right", 12, null]}'},
}


@pytest.mark.timeout(240)
def test_rules_and_logprobs_of_a_member_alone_equal_stock_sglang(
    demo_server: Server, stock: str
) -> None:
    questions = [each.question for each in islice(draw_problems("held_out", 9), len(RULES))]

    def ask(url: str, rule: str, question: str) -> dict[str, Any]:
        sampling = {"temperature": 0, "max_new_tokens": 60, **RULES[rule]}
        body = {
            "text": question,
            "sampling_params": sampling,
            "return_logprob": True,
            # Stock SGLang cannot write down that an alternative is impossible.
            "top_logprobs_num": 0 if rule in ("regex", "schema") else 3,
            "return_text_in_logprobs": True,
        }
        if url == demo_server.url:
            body["model"] = "demo/large"
        answer = httpx.post(f"{url}/generate", json=body, timeout=60)
        assert answer.status_code == 200, answer.text
        content: dict[str, Any] = answer.json()
        return content

    with ThreadPoolExecutor(len(RULES)) as pool:
        routed = list(pool.map(partial(ask, demo_server.url), RULES, questions))
        alone = list(pool.map(partial(ask, stock), RULES, questions))
    for rule, ours, theirs in zip(RULES, routed, alone, strict=True):
        mine, its = ours["meta_info"], theirs["meta_info"]
        assert ours["text"] == theirs["text"], rule
        assert mine["finish_reason"] == its["finish_reason"], rule
        assert entries(mine["output_token_logprobs"]) == entries(its["output_token_logprobs"]), rule
        tops = zip(mine["output_top_logprobs"], its.get("output_top_logprobs", []), strict=True)
        for top, stock_top in tops:
            assert sorted(each[0] for each in top) == pytest.approx(
                sorted(each[0] for each in stock_top), abs=1e-3
            ), rule
        assert set(mine) - {"routing", "llm_ratio"} >= set(its)
    assert len({answer["text"] for answer in alone}) == len(RULES)
    demo_server.assert_clean()


def entries(logprobs: list[Any]) -> list[Any]:
    return [(pytest.approx(value, abs=1e-3), token, text) for value, token, text in logprobs]
