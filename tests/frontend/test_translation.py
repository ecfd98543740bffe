"""SGLang's sampling parameters as homes and engines get them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.frontend.fakes import TOKENIZER
from tokenrouter.errors import MemberDeadError, OverloadedError, RequestError, RoutingError
from tokenrouter.frontend.exchange import Exchange
from tokenrouter.frontend.translation import failure_of, sampling_of
from tokenrouter.ipc.messages import Grammar, Route, Sampling
from tokenrouter.subserver.finish import aborted
from tokenrouter.subserver.sglang_compat.serving import TOP_K_ALL, SamplingParams


def translate(seed: int | None = None, logprobs: int | None = None, **given: Any) -> Sampling:
    params = SamplingParams(**given)
    params.normalize(TOKENIZER)
    return sampling_of(params, seed, logprobs)


def exchange(**fields: str) -> Exchange:
    return Exchange(Route("entropy", (0, 1), 0), "prompt", "max_tokens", **fields)


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
    ("field", "own", "message", "told"),
    [
        ("regex", "regex", "regex: no", "regex: no"),
        ("sampling_params.regex", "regex", "regex: no", "sampling_params.regex: no"),
        ("sampling_params.regex", "regex", "it ends", "sampling_params.regex: it ends"),
        ("response_format", "json_schema", "json_schema: no", "response_format: json_schema: no"),
        ("tool_choice", "calls", "calls: too deep", "tool_choice: too deep"),
    ],
)
@pytest.mark.parametrize(("status", "kind"), [(400, RequestError), (429, OverloadedError)])
def test_a_grammar_that_fails_names_the_clients_field(
    field: str, own: str, message: str, told: str, status: int, kind: type[RequestError]
) -> None:
    finish = aborted(message, status, own)
    error = failure_of(finish, exchange(grammar_field=field))
    assert type(error) is kind
    assert (str(error), error.field) == (told, field)


def test_a_prompt_of_a_batch_names_its_own_kind_of_grammar() -> None:
    finish = aborted("ebnf: no", 400, "ebnf")
    error = failure_of(finish, exchange(grammar_field="sampling_params.regex"))
    assert isinstance(error, RequestError)
    assert (str(error), error.field) == ("sampling_params.ebnf: no", "sampling_params.ebnf")


@pytest.mark.parametrize("field", ["model", "routing.algorithm"])
def test_an_algorithm_that_a_member_cannot_serve_names_what_asked_for_it(field: str) -> None:
    finish = aborted("algorithm: not here", 400, "algorithm")
    error = failure_of(finish, exchange(grammar_field="regex", algorithm_field=field))
    assert isinstance(error, RequestError)
    assert (str(error), error.field) == (f"{field}: not here", field)


def test_a_refusal_of_no_field_names_none() -> None:
    error = failure_of(aborted("no", 400), exchange(grammar_field="regex"))
    assert isinstance(error, RequestError)
    assert (str(error), error.field) == ("no", None)


def test_a_schema_that_is_wrong_names_the_tool() -> None:
    message = "calls: tools[1].function.parameters: no type"
    error = failure_of(aborted(message, 400, "calls"), exchange(grammar_field="tool_choice"))
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
    error = failure_of(aborted("why", status), exchange())
    assert type(error) is kind
    assert error.status == status
    assert str(error) == "why"
