"""SGLang's sampling parameters as homes and engines get them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.frontend.fakes import TOKENIZER
from tokenrouter.errors import MemberDeadError, OverloadedError, RequestError, RoutingError
from tokenrouter.frontend.translation import failure_of, sampling_of
from tokenrouter.ipc.messages import Grammar, Sampling
from tokenrouter.subserver.sglang_compat.serving import TOP_K_ALL, SamplingParams


def translate(seed: int | None = None, logprobs: int | None = None, **given: Any) -> Sampling:
    params = SamplingParams(**given)
    params.normalize(TOKENIZER)
    return sampling_of(params, seed, logprobs)


def test_what_changes_the_draw_is_carried() -> None:
    sampling = translate(
        seed=-4, logprobs=3, max_new_tokens=7, temperature=0.5, top_p=0.9, top_k=4, min_p=0.1,
        frequency_penalty=0.25, presence_penalty=-0.5, repetition_penalty=1.5,
        min_new_tokens=2, logit_bias={"5": -3, "6": 1.5}, stop=["x"], stop_token_ids=[9, 3],
    )  # fmt: skip
    assert sampling == Sampling(
        7, 0.5, 0.9, 4, 0.1, ("x",), (3, 9), min_new_tokens=2, frequency_penalty=0.25,
        presence_penalty=-0.5, repetition_penalty=1.5, logit_bias={5: -3.0, 6: 1.5},
        seed=-4, logprobs=3,
    )  # fmt: skip


def test_who_asks_for_nothing_gets_the_defaults() -> None:
    assert translate(max_new_tokens=7) == Sampling(7, top_k=TOP_K_ALL)


@pytest.mark.parametrize("kind", ["json_schema", "regex", "ebnf", "structural_tag"])
def test_every_kind_of_grammar(kind: Any) -> None:
    assert translate(**{kind: "text"}).grammar == Grammar(kind, "text")


@pytest.mark.parametrize(
    ("field", "message", "told"),
    [
        (None, "regex: no", "regex: no"),
        ("regex", "regex: no", "regex: no"),
        ("sampling_params.regex", "regex: no", "sampling_params.regex: no"),
        ("response_format", "json_schema: no", "response_format: json_schema: no"),
        ("tool_choice", "calls: too deep", "tool_choice: too deep"),
    ],
)
def test_a_grammar_that_is_wrong_names_the_clients_field(
    field: str | None, message: str, told: str
) -> None:
    finish = {"type": "abort", "status_code": 400, "message": message}
    error = failure_of(finish, field)
    assert isinstance(error, RequestError)
    assert (str(error), error.field) == (told, field)


def test_a_schema_that_is_wrong_names_the_tool() -> None:
    message = "calls: tools[1].function.parameters: no type"
    finish = {"type": "abort", "status_code": 400, "message": message}
    error = failure_of(finish, "tool_choice")
    assert isinstance(error, RequestError)
    assert error.field == "tools[1].function.parameters"
    assert str(error) == message.removeprefix("calls: ")


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, RequestError), (429, OverloadedError), (500, RoutingError), (503, MemberDeadError),
    ],
)  # fmt: skip
def test_a_failure_keeps_its_status(status: int, kind: type[Exception]) -> None:
    error = failure_of({"type": "abort", "message": "why", "status_code": status}, None)
    assert type(error) is kind
    assert error.status == status
    assert str(error) == "why"
