"""Answers under a grammar match it, whichever models write them in turn."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.integration.deployments import TAU, cascade, demo
from tests.integration.server import Server

SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "pattern": "^[a-z]{3,8}$"},
        "kind": {"enum": ["sum", "product", None]},
        "digits": {"type": "array", "items": {"enum": [0, 1, 7]}, "minItems": 2, "maxItems": 4},
        "nested": {
            "type": "object",
            "properties": {"right": {"type": "boolean"}},
            "required": ["right"],
            "additionalProperties": False,
        },
    },
    "required": ["name", "kind", "digits", "nested"],
    "additionalProperties": False,
}
BOUND = {
    "json_schema": json.dumps(SCHEMA),
    # Models this small would write white space between two values for ever.
    "logit_bias": {str(space): -100.0 for space in b" \t\r\n"},
}
PATTERN = r"[ab]{4}(-[0-9]{2}){3,5}"


def check(answer: str) -> None:
    value = json.loads(answer)
    assert set(value) == {"name", "kind", "digits", "nested"}
    assert re.fullmatch("[a-z]{3,8}", value["name"])
    assert value["kind"] in ("sum", "product", None)
    assert 2 <= len(value["digits"]) <= 4 and set(value["digits"]) <= {0, 1, 7}
    assert set(value["nested"]) == {"right"} and type(value["nested"]["right"]) is bool


def ask_all(server: Server, prompts: Sequence[list[int]], model: str, **sampling: Any) -> list[Any]:
    """Every prompt at once; half of them greedy, half drawn with a seed."""

    def ask(index: int) -> Any:
        drawn = {"temperature": 1.0 if index % 2 else 0.0, "max_new_tokens": 400}
        return server.generate(
            model=model,
            input_ids=prompts[index],
            sampling_params={**drawn, **sampling},
            seed=index,
            routing={"token_models": True},
        )

    with ThreadPoolExecutor(len(prompts)) as pool:
        return list(pool.map(ask, range(len(prompts))))


SLOW = {
    "entropy": demo("entropy", TAU, (1, 3), model={"max_total_tokens": 900}, served_name="demo"),
    "single": demo("single", None, (1, 1), served_name="demo"),
}


def test_json_under_a_schema(demo_server: Server, problems: list[list[int]]) -> None:
    writes_json(demo_server, problems, "demo:random@0.5")


@pytest.mark.slow
@pytest.mark.parametrize("name", SLOW)
def test_json_of_other_deployments(name: str, problems: list[list[int]]) -> None:
    with Server(SLOW[name]) as server:
        writes_json(server, problems, "demo", routed=name != "single")


def writes_json(server: Server, problems: list[list[int]], model: str, routed: bool = True) -> None:
    served = ask_all(server, problems[:8], model, **BOUND, ignore_eos=True)
    again = ask_all(server, problems[:8], model, **BOUND, ignore_eos=True)
    patterns = ask_all(server, problems[:6], model, regex=PATTERN)
    server.assert_clean()
    written = [answer["meta_info"]["routing"]["tokens"] for answer in served]
    for answer in served:
        assert answer["meta_info"]["finish_reason"]["type"] == "stop"
        check(answer["text"])
    for answer in patterns:
        assert re.fullmatch(PATTERN, answer["text"])
    assert [a["output_ids"] for a in served] == [a["output_ids"] for a in again], "seeds hold"
    if routed:
        assert all(sum(each[member] for each in written) > 40 for member in ("small", "large"))
        assert sum(answer["meta_info"]["routing"]["hand_overs"] for answer in served) > 40


@pytest.mark.slow
def test_three_random_models_write_json(trio: dict[str, Path], texts: list[list[int]]) -> None:
    with Server(cascade(trio, (1, 2, 3), served_name="demo")) as server:
        served = ask_all(server, texts[:12], "demo", **BOUND, presence_penalty=0.5)
        server.assert_clean()
    for answer in served:
        check(answer["text"])
    written = [answer["meta_info"]["routing"]["tokens"] for answer in served]
    assert all(sum(each[member] for each in written) > 20 for member in trio)


def test_what_is_no_grammar_is_a_400_and_harms_nobody(demo_server: Server) -> None:
    bad = [{"regex": "[a"}, {"regex": "\0"}, {"json_schema": '{"type": 3}'}, {"ebnf": "nonsense"}]

    def ask(sampling: dict[str, str]) -> httpx.Response:
        body = {"text": "1+1", "sampling_params": {"max_new_tokens": 8, **sampling}}
        return demo_server.client.post("/generate", json=body)

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(ask, [*bad, {}, {"regex": "abc"}, *bad]))
    assert [each.status_code for each in answers] == [400] * 4 + [200] * 2 + [400] * 4
    for each, sampling in zip(answers, bad, strict=False):
        assert next(iter(sampling)) in each.json()["error"]["message"]
        assert each.json()["error"]["param"] == f"sampling_params.{next(iter(sampling))}"
    assert answers[5].json()["text"] == "abc"
    demo_server.assert_clean()


def test_a_grammar_that_explodes_stalls_nobody(demo_server: Server) -> None:
    def ask(sampling: dict[str, Any]) -> tuple[int, str, float]:
        body = {"text": "1+1", "sampling_params": {"temperature": 1.0, **sampling}}
        started = time.monotonic()
        answer = demo_server.client.post("/generate", json=body)
        return answer.status_code, answer.text, time.monotonic() - started

    nested = "[a-zA-Z ]((.{0,99}){0,99}){0,99}z"
    bad = {"max_new_tokens": 200, "ignore_eos": True, "regex": nested}
    with ThreadPoolExecutor(4) as pool:
        slow = pool.submit(ask, bad)
        others = [ask({"max_new_tokens": 2}) for _ in range(20)]
    status, text, _ = slow.result()
    assert status == 400 and "regex" in text and "too long to follow" in text
    assert all(status == 200 and took < 5 for status, _, took in others)
    demo_server.assert_clean()


def test_grammars_of_clients_that_left_hold_up_nobody(demo_server: Server) -> None:
    def leave(index: int) -> None:
        body = {"text": "1+1", "sampling_params": {"regex": "a" * (60_000 + index)}}
        with suppress(httpx.ReadTimeout):
            httpx.post(f"{demo_server.url}/generate", json=body, timeout=1)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(leave, range(8)))
    started = time.monotonic()
    longer_than_quick = {"enum": [True, False, *("x" * 50 + str(i) for i in range(100))]}
    for schema in ({"type": "boolean"}, longer_than_quick):
        sampling = {"json_schema": json.dumps(schema), "max_new_tokens": 2}
        demo_server.generate(text="1+1", sampling_params=sampling)
    assert time.monotonic() - started < 15
    demo_server.assert_clean()
