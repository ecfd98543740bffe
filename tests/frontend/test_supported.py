"""Fields that this version does not serve are refused by name, their neutral values are not."""

from __future__ import annotations

import dataclasses
import inspect
from typing import Any

import pytest

from tokenrouter.errors import RequestError, UnsupportedError
from tokenrouter.frontend.protocol import ChatRequest, GenerateBody, SamplingBody, TextRequest
from tokenrouter.frontend.supported import NO_EFFECT, NOT_SERVED, check_fields
from tokenrouter.subserver.sglang_compat.serving import GenerateReqInput, SamplingParams

CHAT: dict[str, Any] = {"messages": [{"role": "user", "content": "hi"}]}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("functions", [{"name": "f"}]),
        ("lora_path", "x"),
        ("return_hidden_states", True),
        ("session_params", {"id": "s"}),
        ("modalities", ["text", "audio"]),
        ("bootstrap_host", "h"),
    ],
)
def test_chat_refuses(field: str, value: Any) -> None:
    with pytest.raises(UnsupportedError, match=f"{field}: not served: ") as caught:
        check_fields(ChatRequest.model_validate({**CHAT, field: value}))
    assert (caught.value.field, caught.value.status) == (field, 400)


def test_chat_takes_neutral_values_and_fields_without_effect() -> None:
    neutral = {
        "functions": [],
        "function_call": "auto",
        "modalities": ["text"],
        "lora_path": [None],
        "user": "u",
        "metadata": {"a": "b"},
        "store": False,
        "parallel_tool_calls": True,
    }
    check_fields(ChatRequest.model_validate({**CHAT, **neutral}))


@pytest.mark.parametrize(("field", "value"), [("best_of", 2), ("suffix", "x")])
def test_completions_refuse(field: str, value: Any) -> None:
    with pytest.raises(UnsupportedError, match=field):
        check_fields(TextRequest.model_validate({"prompt": "a", field: value}))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("logprob_start_len", 0),
        ("logprob_start_len", [-1, 5]),
        ("token_ids_logprob", [[3]]),
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


def test_executable_code_is_refused_as_such() -> None:
    body = GenerateBody.model_validate({"text": "a", "custom_logit_processor": ["x", None]})
    with pytest.raises(UnsupportedError, match="executable code"):
        check_fields(body)


@pytest.mark.parametrize(("field", "value"), [("custom_params", {1}), ("stream_interval", 5)])
def test_sampling_parameters_refuse(field: str, value: Any) -> None:
    with pytest.raises(UnsupportedError) as caught:
        check_fields(SamplingBody.model_validate({field: value}), "sampling_params.")
    assert caught.value.field == f"sampling_params.{field}"


def test_generate_takes_neutral_values() -> None:
    body = {"logprob_start_len": [-1, None], "token_ids_logprob": None, "log_metrics": True}
    check_fields(GenerateBody.model_validate({"text": ["a", "b"], **body}))


def test_every_field_of_sglang_is_served_or_refused_with_a_reason() -> None:
    fields = {field.name for field in dataclasses.fields(GenerateReqInput)}
    known = set(GenerateBody.model_fields) | set(NOT_SERVED) | NO_EFFECT
    assert fields <= known, fields - known
    sampling = set(inspect.signature(SamplingParams).parameters)
    assert sampling <= set(SamplingBody.model_fields) | set(NOT_SERVED)


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
