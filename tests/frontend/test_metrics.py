"""``GET /metrics``: exactly what was done, in a form that Prometheus reads."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from prometheus_client.exposition import generate_latest
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as parse_openmetrics,
)
from prometheus_client.parser import text_string_to_metric_families as parse

from tests.frontend.fakes import (
    NAMES,
    Deployment,
    deployment,
    leave,
    make_config,
    make_roster,
    reply,
    state_of,
)
from tokenrouter.config import Config
from tokenrouter.frontend import presets
from tokenrouter.frontend.families import Families
from tokenrouter.frontend.member_metrics import batch_sizes, member_metrics
from tokenrouter.frontend.metrics import exposition, plan_metrics
from tokenrouter.ipc.member_state import Buckets, Counters, MemberState
from tokenrouter.ipc.operations import Planned

COUNTERS = Counters(
    waiting=1, ready=2, blocked=3, parked=4, parked_tokens=5, written_tokens=6, throughput=7.5,
    admitted_tokens=40, cached_tokens=10, fed_tokens=8, hand_overs={0: {1: 9}, 1: {0: 10}},
    threshold_wait=Buckets((0.1, 1.0), [3, 2, 1], 4.5),
    steps={1: Buckets((0.1,), [2, 0], 0.1), 4: Buckets((0.1,), [1, 1], 0.6)},
    routing={"route": Buckets((0.1,), [6, 0], 0.2)},
    delays={"peer": Buckets((0.1,), [5, 1], 0.7)},
    log_lines_dropped=11,
)  # fmt: skip


@dataclass
class Scrape:
    """Samples by name and labels, and their families by name."""

    text: str

    def __post_init__(self) -> None:
        self.families = {family.name: family for family in parse(self.text)}
        self.samples = {
            (sample.name, frozenset(sample.labels.items())): sample.value
            for family in self.families.values()
            for sample in family.samples
        }

    def value(self, name: str, **labels: str) -> float:
        """0 if there is no such sample, as Prometheus's ``increase`` would have it."""
        exact = {"from_": "from"}
        wanted = frozenset((exact.get(key, key), value) for key, value in labels.items())
        return self.samples.get((f"tokenrouter_{name}", wanted), 0.0)


def scrape(server: Deployment) -> Scrape:
    answer = httpx.get(f"{server.url}/metrics")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain")
    return Scrape(answer.text)


def ask(server: Deployment, path: str = "/v1/completions", **body: Any) -> httpx.Response:
    return httpx.post(f"{server.url}{path}", json={"model": "demo", **body}, timeout=20)


def tokens_of(prompt: str, members: int, sample: int = 0) -> list[int]:
    """How many tokens each member writes in answer to ``prompt``: in turn, by the script."""
    count = len(reply(list(prompt.encode()), sample))
    return [len(range(first, count, members)) for first in range(members)]


def test_values_are_what_the_requests_got(server: Deployment) -> None:
    before = scrape(server)
    used = [0, 0]
    for prompt in ("hello", "hello there"):
        for stream in (False, True):
            answer = ask(server, prompt=prompt, stream=stream, max_tokens=200)
            assert answer.status_code == 200
            used = [a + b for a, b in zip(used, tokens_of(prompt, 2), strict=True)]
    assert ask(server, model="demo/large", prompt="hello", max_tokens=200).status_code == 200
    alone = tokens_of("hello", 1)[0]
    after = scrape(server)

    def grown(name: str, **labels: str) -> float:
        return after.value(name, **labels) - before.value(name, **labels)

    demo = {"model_name": "demo"}
    large = {"model_name": "demo/large"}
    assert grown("generation_tokens_total", member="small", **demo) == used[0]
    assert grown("generation_tokens_total", member="large", **demo) == used[1]
    assert grown("generation_tokens_total", member="large", **large) == alone
    assert grown("generation_tokens_total", member="small", **large) == 0
    assert grown("prompt_tokens_total", **demo) == 2 * (5 + 11)
    assert grown("prompt_tokens_total", **large) == 5
    assert grown("cached_tokens_total", **demo) == 2 * 4
    assert grown("num_requests_total", outcome="stop", **demo) == 4
    assert grown("num_requests_total", outcome="stop", **large) == 1
    assert grown("request_hand_overs_total", **demo) == sum(used)
    assert grown("time_to_first_token_seconds_count", **demo) == 4
    assert grown("e2e_request_latency_seconds_count", **demo) == 4
    assert grown("inter_token_latency_seconds_count", **demo) == sum(used) - 4
    http = {"endpoint": "/v1/completions", "method": "POST", "status": "200"}
    assert grown("http_requests_total", **http) == 5
    assert after.value("num_requests_in_flight", **demo) == 0


def test_a_stream_is_timed_token_by_token(server: Deployment) -> None:
    before = scrape(server)
    began = time.monotonic()
    assert ask(server, prompt="hello", stream=True).status_code == 200
    took = time.monotonic() - began
    after = scrape(server)
    sums = {}
    for name in ("time_to_first_token", "inter_token_latency", "e2e_request_latency"):
        key = f"{name}_seconds_sum"
        sums[name] = after.value(key, model_name="demo") - before.value(key, model_name="demo")
    first, between, whole = sums.values()
    assert 0 < first < whole < took
    assert first + between == pytest.approx(whole, abs=0.05)


def test_failures_by_status(server: Deployment) -> None:
    before = scrape(server)
    assert ask(server, prompt="FAIL now").status_code == 503
    assert ask(server, model="nobody", prompt="x").status_code == 404
    assert ask(server, prompt="x", max_tokens=-1).status_code == 400
    assert httpx.get(f"{server.url}/wp-admin/{time.time()}").status_code == 404
    after = scrape(server)

    def grown(name: str, **labels: str) -> float:
        return after.value(name, **labels) - before.value(name, **labels)

    assert grown("num_requests_total", model_name="demo", outcome="error_503") == 1
    for status in ("503", "404", "400"):
        labels = {"endpoint": "/v1/completions", "method": "POST", "status": status}
        assert grown("http_requests_total", **labels) == 1
    unknown = {"endpoint": "other", "method": "GET", "status": "404"}
    assert grown("http_requests_total", **unknown) == 1


def test_clients_that_leave(server: Deployment) -> None:
    before = scrape(server)
    for stream in (False, True):
        leave(server, "/generate", {"text": "STOP", "stream": stream})
    assert server.members.wait_for(lambda: len(server.members.aborted) == 2)
    demo = {"model_name": "demo"}

    def counts() -> list[float]:
        after = scrape(server)
        return [
            after.value(name, **labels) - before.value(name, **labels)
            for name, labels in (
                ("client_disconnects_total", {"endpoint": "/generate"}),
                ("num_aborted_requests_total", demo),
                ("num_requests_total", {**demo, "outcome": "abort"}),
            )
        ]

    deadline = time.monotonic() + 10
    while counts() != [2, 2, 2] and time.monotonic() < deadline:
        time.sleep(0.01)
    assert counts() == [2, 2, 2]


def test_samples_of_n_count_once_each_and_sglangs_prefix_request_not_at_all(
    server: Deployment,
) -> None:
    before = scrape(server)
    body = {"text": "hello", "sampling_params": {"n": 3}}
    assert httpx.post(f"{server.url}/generate", json=body).status_code == 200
    after = scrape(server)
    key = {"model_name": "demo", "outcome": "stop"}
    assert after.value("num_requests_total", **key) - before.value("num_requests_total", **key) == 3
    assert len(server.members.submitted) == 4


def test_a_silent_member_costs_a_second_and_is_down(server: Deployment) -> None:
    server.members.silent.add(1)
    began = time.monotonic()
    seen = scrape(server)
    assert time.monotonic() - began < 2
    assert seen.value("up", process="small") == 1
    assert seen.value("up", process="front-end") == 1
    assert seen.value("up", process="detokenizer") == 1
    assert seen.samples["tokenrouter_restarts_total", frozenset({("process", "large")})] == 0
    assert seen.samples["tokenrouter_up", frozenset({("process", "large")})] == 0


def test_every_rank_of_a_member_is_up_and_down_with_it(folder: Path) -> None:
    model = {"name": "large", "model_path": folder, "tp_size": 2}
    config = make_config(folder, models=[{"name": "small", "model_path": folder}, model])
    with deployment(config, make_roster()) as server:
        up = scrape(server)
        server.members.silent.add(1)
        down = scrape(server)
    for name, expected in {"small": (1, 1), "large": (1, 0), "large#1": (1, 0)}.items():
        key = "tokenrouter_up", frozenset({("process", name)})
        assert (up.samples[key], down.samples[key]) == expected
        assert ("tokenrouter_restarts_total", key[1]) in up.samples
    assert "small#1" not in up.text


def test_both_formats_and_monotone_histograms(server: Deployment) -> None:
    ask(server, prompt="hello", stream=True)
    accept = {"accept": "application/openmetrics-text; version=1.0.0"}
    answer = httpx.get(f"{server.url}/metrics", headers=accept)
    assert answer.headers["content-type"].startswith("application/openmetrics-text")
    families = list(parse_openmetrics(answer.text))
    assert {family.name for family in families} == {
        name.removesuffix("_total") for name in scrape(server).families
    }
    assert_monotone(families)


def assert_monotone(families: Sequence[Any]) -> None:
    """Buckets grow with their bound, and the last is the count."""
    checked = 0
    for family in families:
        if family.type != "histogram":
            continue
        series: dict[frozenset[tuple[str, str]], list[tuple[float, float]]] = {}
        counts: dict[frozenset[tuple[str, str]], float] = {}
        for sample in family.samples:
            labels = dict(sample.labels)
            if sample.name.endswith("_bucket"):
                bound = float(labels.pop("le"))
                series.setdefault(frozenset(labels.items()), []).append((bound, sample.value))
            elif sample.name.endswith("_count"):
                counts[frozenset(labels.items())] = sample.value
        for key, buckets in series.items():
            assert all(a[0] < b[0] and a[1] <= b[1] for a, b in pairwise(buckets)), family.name
            assert buckets[-1] == (float("inf"), counts[key])
            checked += 1
    assert checked > 0


def state(member: int, **changes: Any) -> MemberState:
    counters = msgspec.structs.replace(COUNTERS, **changes)
    return msgspec.structs.replace(
        state_of(0, member), counters=counters, free_tokens=25, stale=12, dropped={"malformed": 13},
        batches={1: 3, 3: 2, 300: 1}, expired_waits=14, evictions=15, threshold=2, live=16,
    )  # fmt: skip


def written(config: Config, states: Sequence[MemberState | None]) -> Scrape:
    return Scrape(exposition(member_metrics(config, states), generate_latest))


def test_what_the_planner_decided_is_told_once_it_has() -> None:
    config = make_config(Path("model"))
    assert list(plan_metrics(config, None)) == []
    planned = Planned(5, [(1, 1), (1, 2)], 3, 2, 1.115, "p = 0.35")
    seen = Scrape(exposition(plan_metrics(config, planned), generate_latest))
    for name, value in {"changes_total": 3, "concurrency": 2, "gain": 1.115}.items():
        assert seen.value(f"plan_{name}", model_name="demo") == value, name


def test_every_number_of_a_member_is_told() -> None:
    seen = written(make_config(Path("model")), [state(0), None])
    small = {"model_name": "demo", "member": "small"}
    for name, value in {
        "num_queue_reqs": 1, "num_running_reqs": 2, "num_blocked_reqs": 3, "num_parked_reqs": 4,
        "num_parked_tokens": 5, "written_tokens_total": 6, "gen_throughput": 7.5,
        "computed_tokens_total": 8, "cache_hit_rate": 0.25, "token_usage": 0.75,
        "num_used_tokens": 75, "max_total_num_tokens": 100, "threshold": 2, "num_live_reqs": 16,
        "stale_messages_total": 12, "expired_waits_total": 14, "evictions_total": 15,
        "batch_size_count": 6, "batch_size_sum": 309,
        "threshold_wait_seconds_count": 6, "threshold_wait_seconds_sum": 4.5,
    }.items():  # fmt: skip
        assert seen.value(name, **small) == value, name
    assert seen.value("hand_overs_total", from_="small", to="large", **small) == 9
    assert seen.value("hand_overs_total", from_="large", to="small", **small) == 10
    assert seen.value("step_seconds_sum", batch="4", **small) == 0.6
    assert seen.value("step_seconds_bucket", batch="4", le="0.1", **small) == 1
    assert seen.value("step_seconds_bucket", batch="4", le="+Inf", **small) == 2
    assert seen.value("routing_seconds_count", hook="route", **small) == 6
    assert seen.value("message_delay_seconds_count", link="peer", **small) == 6
    assert seen.value("batch_size_bucket", le="2.0", **small) == 3
    assert seen.value("batch_size_bucket", le="4.0", **small) == 5
    assert not any(("member", "large") in labels for _, labels in seen.samples)
    assert_monotone(list(seen.families.values()))


def test_labels_are_few_whatever_clients_send(server: Deployment) -> None:
    ask(server, prompt="hi")
    before = len(scrape(server).samples)
    for i in range(8):
        httpx.request("GET" if i % 2 else f"METHOD{i}", f"{server.url}/path/{i}")
        ask(server, model=f"demo@{i / 100}", prompt="hi", rid=f"id-{i}")
        ask(server, model=f"no-{i}", prompt="hi")
        ask(server, model=f"demo:no-{i}", prompt="hi")
    seen = scrape(server)
    # Buckets and statuses that had not occurred yet; nothing per request.
    assert len(seen.samples) - before < 20
    known = {"demo", *(f"demo/{name}" for name in NAMES)}
    known |= {f"demo:{name}" for name in presets.names(server.config)}
    names = {dict(labels).get("model_name", "demo") for _, labels in seen.samples}
    assert names <= known


def test_batch_sizes() -> None:
    buckets = batch_sizes({1: 1, 2: 1, 3: 1, 4: 1, 5: 1, 256: 1, 257: 1})
    assert buckets.bounds == (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
    assert buckets.counts == [1, 1, 2, 1, 0, 0, 0, 0, 1, 1, 0]
    assert buckets.sum == 528


def test_labels_may_be_words_of_python() -> None:
    families = Families("member")
    families.counter("moves", "Moves.", ("a",), 1, **{"from": "x", "to": "y"})
    (family,) = families
    assert family.samples[0].labels == {"member": "a", "from": "x", "to": "y"}
