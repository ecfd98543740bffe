"""Fields that this version does not serve are refused by name, their neutral values are not."""

from __future__ import annotations

from typing import Any

import pytest

from tokenrouter.errors import RequestError, UnsupportedError
from tokenrouter.frontend.protocol import ChatRequest, GenerateBody, SamplingBody, TextRequest
from tokenrouter.frontend.supported import check_fields

CHAT: dict[str, Any] = {"messages": [{"role": "user", "content": "hi"}]}
TOOL = {"type": "function", "function": {"name": "f"}}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("frequency_penalty", 0.1),
        ("presence_penalty", -1),
        ("repetition_penalty", 1.1),
        ("logit_bias", {"5": 1}),
        ("logprobs", True),
        ("top_logprobs", 2),
        ("min_tokens", 1),
        ("response_format", {"type": "json_object"}),
        ("response_format", {"type": "structural_tag", "structures": [], "triggers": []}),
        ("regex", "a+"),
        ("ebnf", "root ::= 'a'"),
        ("tools", [TOOL]),
        ("tool_choice", "required"),
        ("functions", [{"name": "f"}]),
        ("lora_path", "x"),
        ("return_hidden_states", True),
        ("session_params", {"id": "s"}),
        ("modalities", ["text", "audio"]),
        ("bootstrap_host", "h"),
    ],
)
def test_chat_refuses(field: str, value: Any) -> None:
    with pytest.raises(UnsupportedError, match=field) as caught:
        check_fields(ChatRequest.model_validate({**CHAT, field: value}))
    assert (caught.value.field, caught.value.status) == (field, 400)


def test_chat_takes_neutral_values_and_fields_without_effect() -> None:
    neutral = {
        "frequency_penalty": 0,
        "presence_penalty": 0.0,
        "repetition_penalty": 1.0,
        "logit_bias": {},
        "logprobs": False,
        "top_logprobs": 0,
        "response_format": {"type": "text"},
        "tools": [],
        "tool_choice": "auto",
        "modalities": ["text"],
        "user": "u",
        "metadata": {"a": "b"},
        "store": False,
        "parallel_tool_calls": True,
    }
    check_fields(ChatRequest.model_validate({**CHAT, **neutral}))


@pytest.mark.parametrize(
    ("field", "value"),
    [("logprobs", 0), ("logprobs", 3), ("best_of", 2), ("suffix", "x"), ("json_schema", "{}")],
)
def test_completions_refuse(field: str, value: Any) -> None:
    with pytest.raises(UnsupportedError, match=field):
        check_fields(TextRequest.model_validate({"prompt": "a", field: value}))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("return_logprob", True),
        ("image_data", "x.png"),
        ("input_embeds", [[0.5]]),
        ("custom_logit_processor", "x"),
        ("lora_path", ["x"]),
        ("return_hidden_states", True),
    ],
)
def test_generate_refuses(field: str, value: Any) -> None:
    with pytest.raises(UnsupportedError, match=field):
        check_fields(GenerateBody.model_validate({"text": "a", field: value}))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("min_new_tokens", 1),
        ("json_schema", "{}"),
        ("logit_bias", {"1": 2}),
        ("custom_params", {1}),
    ],
)
def test_sampling_parameters_refuse(field: str, value: Any) -> None:
    with pytest.raises(UnsupportedError) as caught:
        check_fields(SamplingBody.model_validate({field: value}), "sampling_params.")
    assert caught.value.field == f"sampling_params.{field}"


def test_generate_takes_neutral_values() -> None:
    body = {"return_logprob": False, "logprob_start_len": -1, "top_logprobs_num": 0}
    check_fields(GenerateBody.model_validate({"text": "a", **body, "log_metrics": True}))
    check_fields(SamplingBody.model_validate({"min_new_tokens": 0, "regex": None}))


@pytest.mark.parametrize(
    "request_",
    [
        ChatRequest.model_validate({**CHAT, "max_token": 3}),
        SamplingBody.model_validate({"max_token": 3}),
    ],
)
def test_unknown_fields_are_refused(request_: Any) -> None:
    with pytest.raises(RequestError, match="max_token: unknown field") as caught:
        check_fields(request_)
    assert not isinstance(caught.value, UnsupportedError)
