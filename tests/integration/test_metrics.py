"""Metrics and log lines of a real deployment are exactly what its answers say."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pytest

from tests.frontend.test_metrics import Scrape, assert_monotone
from tests.integration.server import Server
from tests.integration.test_restart import kill

REQUESTS = 24
LENGTH = 20
CONFIG = {
    "served_name": "demo",
    "algorithm": "random",
    "router_threshold": 0.35,
    "log_level": "info",
    "log_format": "json",
    "models": [
        {"name": "small", "engine": "timed", "step_ms": 1.0},
        {"name": "large", "engine": "timed", "step_ms": 2.0, "threshold": 3},
    ],
}


@dataclass
class Served:
    """The answers of a deployment, its metrics, and its whole log.

    ``seen`` after all answers, ``down`` when a member had been killed, ``back`` after its
    return.
    """

    answers: list[dict[str, Any]]
    seen: Scrape
    down: Scrape
    back: Scrape
    lines: list[dict[str, Any]]


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with Server(CONFIG) as server:

        def ask(number: int) -> dict[str, Any]:
            prompt = f"prompt {number}"
            length = {"max_new_tokens": LENGTH, "ignore_eos": True}
            return server.generate(
                text=prompt, rid=f"id-{number}", sampling_params=length,
                routing={"token_models": True, "seed": number},
            )  # fmt: skip

        with ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(ask, range(REQUESTS)))
        assert server.client.get("/health").status_code == 200
        wrong = {"model": "demo", "prompt": "x", "max_tokens": -1}
        assert server.client.post("/v1/completions", json=wrong).status_code == 400
        seen = Scrape(server.client.get("/metrics").text)
        kill(server, "large")
        down = _when(server, lambda scrape: not scrape.value("up", process="large"))
        back = _when(server, lambda scrape: bool(scrape.value("up", process="large")))
        server.stop()
        lines = [json.loads(line) for line in server.log.read_text().splitlines()]
        yield Served(answers, seen, down, back, lines)


def _when(server: Server, condition: Callable[[Scrape], bool]) -> Scrape:
    """The first scrape that meets a condition."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        scrape = Scrape(server.client.get("/metrics").text)
        if condition(scrape):
            return scrape
        time.sleep(0.01)
    raise AssertionError("it never came to that")


def routing(served: Served) -> list[dict[str, Any]]:
    return [answer["meta_info"]["routing"] for answer in served.answers]


def test_tokens_of_every_member(served: Served) -> None:
    tokens: Counter[str] = Counter()
    for each in routing(served):
        tokens.update(each["tokens"])
    assert sum(tokens.values()) == REQUESTS * LENGTH
    for name, count in tokens.items():
        labels = {"model_name": "demo", "member": name}
        assert served.seen.value("written_tokens_total", **labels) == count
        assert served.seen.value("generation_tokens_total", **labels) == count


def test_hand_overs(served: Served) -> None:
    models = [each["token_models"] for each in routing(served)]
    to_large = sum(writers.count("large") for writers in models)
    to_small = to_large - sum(writers[-1] == "large" for writers in models)
    home = {"model_name": "demo", "member": "small"}
    assert served.seen.value("hand_overs_total", from_="small", to="large", **home) == to_large
    assert served.seen.value("hand_overs_total", from_="large", to="small", **home) == to_small
    assert to_large + to_small == sum(each["hand_overs"] for each in routing(served))


def test_counts_of_histograms(served: Served) -> None:
    seen, demo = served.seen, {"model_name": "demo"}
    assert seen.value("num_requests_total", outcome="length", **demo) == REQUESTS
    assert seen.value("time_to_first_token_seconds_count", **demo) == REQUESTS
    assert seen.value("e2e_request_latency_seconds_count", **demo) == REQUESTS
    assert seen.value("queue_time_seconds_count", **demo) == REQUESTS
    assert seen.value("inter_token_latency_seconds_count", **demo) == REQUESTS * (LENGTH - 1)
    for name in ("small", "large"):
        labels = {**demo, "member": name}
        rows = seen.value("batch_size_sum", **labels)
        assert seen.value("threshold_wait_seconds_count", **labels) == rows
        assert seen.value("routing_seconds_count", hook="route", **labels) == rows
        steps = sum(seen.value("step_seconds_count", batch=str(1 << i), **labels) for i in range(9))
        assert steps == seen.value("batch_size_count", **labels)
        assert seen.value("message_delay_seconds_count", link="peer", **labels) > 0
        assert seen.value("up", process=name) == 1
        assert seen.value("num_used_tokens", **labels) == 0
        assert seen.value("threshold", **labels) == 1  # clamped: nothing is live
    assert_monotone(list(seen.families.values()))


def test_a_member_that_died_is_down_and_then_starts_at_zero(served: Served) -> None:
    labels = {"model_name": "demo", "member": "large"}
    its = {name for name, found in served.down.samples if ("member", "large") in found}
    assert its == {"tokenrouter_generation_tokens_total"}  # the front end's
    assert served.down.value("up", process="small") == 1
    assert served.seen.value("restarts_total", process="large") == 0
    assert served.back.value("restarts_total", process="large") == 1
    assert served.back.value("restarts_total", process="small") == 0
    assert served.back.value("written_tokens_total", **labels) == 0
    before = served.seen.value("generation_tokens_total", **labels)
    assert served.back.value("generation_tokens_total", **labels) == before > 0


def test_one_line_a_request_with_its_numbers(served: Served) -> None:
    lines = [line for line in served.lines if line.get("path") == "/generate"]
    assert len(lines) == REQUESTS
    by_id = {line["id"]: line for line in lines}
    for number, answer in enumerate(served.answers):
        line, meta = by_id[f"id-{number}"], answer["meta_info"]
        assert (line["process"], line["level"]) == ("front-end", "info")
        assert (line["method"], line["status"], line["finish"]) == ("POST", 200, "length")
        assert line["model"] == "demo"
        assert line["prompt_tokens"] == meta["prompt_tokens"]
        assert line["output_tokens"] == meta["routing"]["tokens"]
        assert line["hand_overs"] == meta["routing"]["hand_overs"]
        assert 0 <= line["queue_ms"] <= line["ttft_ms"] <= line["e2e_ms"] <= line["request_ms"]
        assert line["ttft_ms"] + line["itl_ms"] * (LENGTH - 1) == pytest.approx(
            line["e2e_ms"], abs=50
        )
        assert "client_gone" not in line and "error" not in line


def test_failures_have_their_field_and_probes_have_no_line(served: Served) -> None:
    paths = {line["path"] for line in served.lines if "path" in line}
    assert paths == {"/generate", "/v1/completions"}
    (failed,) = (line for line in served.lines if line.get("path") == "/v1/completions")
    assert (failed["status"], failed["field"]) == (400, "max_tokens")
    assert failed["error"].startswith("max_tokens")


def test_every_line_of_every_process_is_json(served: Served) -> None:
    for line in served.lines:
        assert datetime.fromisoformat(line["time"]).tzinfo is not None
        assert {"process", "level", "logger", "message"} <= set(line)
    assert {"supervisor", "front-end"} <= {line["process"] for line in served.lines}
