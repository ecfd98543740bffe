"""What the API allows and this version does not serve: refused by name, never ignored."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pydantic import BaseModel

from tokenrouter.errors import RequestError, UnsupportedError


def _off(value: Any) -> bool:
    return value is None or value is False


def _empty(value: Any) -> bool:
    return _off(value) or value in ([], {}, "")


def _zero(value: Any) -> bool:
    return value is None or value == 0


def _one(value: Any) -> bool:
    return value is None or value == 1


def _text(value: Any) -> bool:
    return value is None or value == ["text"] or getattr(value, "type", None) == "text"


NOT_SERVED: Mapping[str, Callable[[Any], bool]] = {
    "frequency_penalty": _zero,
    "presence_penalty": _zero,
    "repetition_penalty": _one,
    "logit_bias": _empty,
    "min_tokens": _zero,
    "min_new_tokens": _zero,
    "best_of": _one,
    "suffix": _empty,
    "logprobs": _off,
    "top_logprobs": _zero,
    "return_logprob": _off,
    "logprob_start_len": lambda value: value in (None, -1),
    "top_logprobs_num": _zero,
    "token_ids_logprob": _empty,
    "response_format": _text,
    "json_schema": _off,
    "regex": _off,
    "ebnf": _off,
    "structural_tag": _off,
    "tools": _empty,
    "tool_choice": lambda value: value in (None, "none", "auto"),
    "functions": _empty,
    "function_call": lambda value: value in (None, "none", "auto"),
    "modalities": _text,
    "audio": _off,
    "image_data": _empty,
    "audio_data": _empty,
    "video_data": _empty,
    "prediction": _off,
    "web_search_options": _off,
    "input_embeds": _off,
    "session_params": _off,
    "lora_path": _off,
    "lora_id": _off,
    "custom_logit_processor": _off,
    "custom_params": _empty,
    "stream_interval": _off,
    "return_hidden_states": _off,
    "bootstrap_host": _off,
    "bootstrap_port": _off,
    "bootstrap_room": _off,
    "data_parallel_rank": _off,
    "background": _off,
}
"""Field to a test for the values that ask for nothing."""

NO_EFFECT = frozenset(
    {
        "user",
        "metadata",
        "store",
        "service_tier",
        "safety_identifier",
        "prompt_cache_key",
        "parallel_tool_calls",
        "return_text_in_logprobs",
        "log_metrics",
    }
)
"""Fields that change nothing in an answer without the features above."""


def check_fields(request: BaseModel, prefix: str = "") -> None:
    """Refuse what ``request`` asks for and this version does not serve, and unknown fields.

    Raises:
        UnsupportedError: the first such field.
        RequestError: the first unknown field.
    """
    extra = request.model_extra or {}
    for name, value in request:
        asks_nothing = NOT_SERVED.get(name)
        if asks_nothing is None:
            if name in extra and name not in NO_EFFECT:
                raise RequestError(f"{prefix}{name}: unknown field", prefix + name)
        elif not asks_nothing(value):
            raise UnsupportedError(
                f"{prefix}{name}: not served by this version; leave it out", prefix + name
            )
