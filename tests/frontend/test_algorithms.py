"""What algorithms refuse, and what they need room for, before a request starts anywhere."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tests.frontend.fakes import NAMES, Deployment, make_roster
from tokenrouter.errors import ConfigError, RequestError, RoutingError
from tokenrouter.frontend.algorithms import scheduler_of
from tokenrouter.frontend.limits import Limits
from tokenrouter.ipc.messages import Route, Sampling
from tokenrouter.schedulers.base import RoutingScheduler
from tokenrouter.schedulers.single import Single

PICKY = "tests.frontend.test_algorithms:Picky"


class Picky(Single):
    """Takes no other ``top_k`` than those that are below the vocabulary; fails at 7, exits at 8."""

    scratch_tokens = 12

    def check(self, sampling: Sampling, vocabulary_size: int) -> None:
        if sampling.top_k == 7:
            raise ValueError("boo")
        if sampling.top_k == 8:
            raise SystemExit(3)
        if not 0 < sampling.top_k < vocabulary_size:
            raise RequestError(f"top_k: must be below {vocabulary_size}", "top_k")


def limits(**changes: int) -> Limits:
    return Limits(make_roster(**changes), NAMES)


def picky(**changes: Any) -> Route:
    return Route(PICKY, (0, 1), 0, **changes)


def test_requests_alike_share_an_instance() -> None:
    assert scheduler_of(picky(), NAMES) is scheduler_of(picky(seed=5, preset="x"), NAMES)
    routes = [Route("random", (0, 1), 0, threshold) for threshold in (0.1, 0.2)]
    assert scheduler_of(routes[0], NAMES) is not scheduler_of(routes[1], NAMES)


def test_settings_that_are_not_taken_are_refused_each_time() -> None:
    for _ in range(2):
        with pytest.raises(ConfigError, match="does not take them"):
            scheduler_of(picky(args={"k": 1}), NAMES)


def test_scratch_needs_room_beside_prompt_and_output() -> None:
    one = Route("single", (0, 1), 0)
    assert limits().room(one, 100, "prompt") == 412
    assert limits().room(picky(), 100, "prompt") == 400
    limits().check_length(picky(), 100, 400, "max_tokens")
    with pytest.raises(RequestError, match=r"500 \(the context.* less 12 that algorithm .*Picky"):
        limits().check_length(picky(), 100, 401, "max_tokens")
    with pytest.raises(RequestError, match=r"together may have 0 \(the KV pool of 'large', less"):
        limits(pool_tokens=5).room(picky(), 1, "prompt")


def test_a_refusal_names_the_field_as_the_client_knows_it() -> None:
    limits().check_sampling(picky(), Sampling(1, top_k=5), "")
    with pytest.raises(RequestError, match=r"^top_k: must be below 300$") as caught:
        limits(vocab_size=300).check_sampling(picky(), Sampling(1, top_k=310), "")
    assert caught.value.field == "top_k"
    with pytest.raises(RequestError, match=r"^sampling_params\.top_k: must be") as caught:
        limits().check_sampling(picky(), Sampling(1), "sampling_params.")
    assert caught.value.field == "sampling_params.top_k"


def test_a_check_that_fails_is_logged_and_is_no_mistake_of_the_client(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with pytest.raises(RoutingError, match=r"Picky': check failed: ValueError: boo$"):
        limits().check_sampling(picky(), Sampling(1, top_k=7), "")
    (record,) = caplog.records
    assert PICKY in record.getMessage() and record.exc_info is not None
    with pytest.raises(RoutingError, match=r"Picky': check failed: SystemExit: 3$"):
        limits().check_sampling(picky(), Sampling(1, top_k=8), "")


def test_algorithms_refuse_nothing_by_themselves() -> None:
    RoutingScheduler(NAMES).check(Sampling(1), 300)


CHAT = "/v1/chat/completions"
MESSAGES = {"messages": [{"role": "user", "content": "hi"}]}


def test_one_deployment_serves_several_algorithms(server: Deployment) -> None:
    for model, algorithm, threshold, preset in (
        ("demo", "entropy", 0.45, None),
        ("demo:careful", "entropy", 0.1, "careful"),
        ("demo:careful@0.2", "entropy", 0.2, "careful"),
        ("demo:random@0.3", "random", 0.3, "random"),
    ):
        answer = httpx.post(server.url + CHAT, json={"model": model, **MESSAGES}).json()
        assert answer["model"] == model
        routing = answer["routing"]
        assert (routing["algorithm"], routing["router_threshold"]) == (algorithm, threshold)
        assert routing.get("preset") == preset
        sent = server.members.submitted[-1].route
        assert (sent.algorithm, sent.router_threshold) == (algorithm, threshold)
    metrics = httpx.get(f"{server.url}/metrics").text
    assert 'num_requests_total{model_name="demo:careful",outcome="stop"}' in metrics
    assert 'num_requests_total{model_name="demo:random",outcome="stop"}' in metrics


@pytest.mark.parametrize("n", [1, 3])
def test_sampling_that_an_algorithm_cannot_follow_is_refused(server: Deployment, n: int) -> None:
    body = {"model": "demo:picky", **MESSAGES, "n": n}
    refused = httpx.post(server.url + CHAT, json={**body, "top_k": 320})
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "top_k")
    assert not server.members.submitted
    assert httpx.post(server.url + CHAT, json={**body, "top_k": 319}).status_code == 200
    sampling = {"max_new_tokens": 4, "n": n}
    generate = {"model": "demo:picky", "text": "hi", "sampling_params": sampling}
    refused = httpx.post(f"{server.url}/generate", json=generate)
    assert refused.json()["error"]["param"] == "sampling_params.top_k"


@pytest.mark.parametrize("n", [1, 3])
def test_a_check_that_fails_is_an_error_of_its_request(server: Deployment, n: int) -> None:
    sampling: dict[str, Any] = {"top_k": 7, "n": n}
    for path, body in (
        (CHAT, {**MESSAGES, **sampling}),
        ("/v1/completions", {"prompt": "hi", **sampling}),
        ("/generate", {"text": "hi", "sampling_params": sampling}),
    ):
        failed = httpx.post(server.url + path, json={"model": "demo:picky", **body})
        error = failed.json()["error"]
        assert (failed.status_code, error["param"]) == (500, None)
        assert f"{PICKY}': check failed: ValueError: boo" in error["message"]


@pytest.mark.parametrize(
    ("body", "status", "field"),
    [
        ({"model": "demo:carful"}, 404, "model"),
        ({"model": "demo:os:system"}, 404, "model"),
        ({"model": "demo", "routing": {"algorithm": "os:system"}}, 404, "routing.algorithm"),
        ({"model": "demo:random@2"}, 400, "model"),
        ({"model": "demo", "routing": {"algorithm": 5}}, 400, "routing.algorithm"),
        ({"model": "demo", "routing": {"algorithm_args": {}}}, 400, "routing.algorithm_args"),
    ],
)
def test_what_a_client_cannot_ask_for(
    server: Deployment, body: dict[str, Any], status: int, field: str
) -> None:
    refused = httpx.post(server.url + CHAT, json={**body, **MESSAGES})
    assert (refused.status_code, refused.json()["error"]["param"]) == (status, field)
    assert not server.members.submitted


@pytest.mark.parametrize(
    ("asked", "field"),
    [
        ({"model": "demo:random"}, "model"),
        ({"model": "demo", "routing": {"algorithm": "random"}}, "routing.algorithm"),
    ],
)
@pytest.mark.parametrize("path", [CHAT, "/generate"])
def test_what_a_member_cannot_do_for_an_algorithm_names_what_asked_for_it(
    server: Deployment, path: str, asked: dict[str, Any], field: str
) -> None:
    text = "BAD ALGORITHM"
    body = {"messages": [{"role": "user", "content": text}]} if path == CHAT else {"text": text}
    refused = httpx.post(server.url + path, json={**asked, **body}, timeout=20)
    error = refused.json()["error"]
    assert (refused.status_code, error["param"]) == (400, field)
    assert error["message"] == f"{field}: no such network"
