"""What the API allows and is not served: refused by name and with the reason, never ignored."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pydantic import BaseModel

from tokenrouter.configuration.sglang_args import nearest
from tokenrouter.errors import RequestError, UnsupportedError
from tokenrouter.frontend.quoting import cut

_Test = Callable[[Any], bool]


def _off(value: Any) -> bool:
    return value is None or value is False


def _empty(value: Any) -> bool:
    return _off(value) or value in ([], {}, "")


def _one(value: Any) -> bool:
    return value is None or value == 1


def _text(value: Any) -> bool:
    return value is None or value == ["text"]


def _output_only(value: Any) -> bool:
    values = value if isinstance(value, list) else [value]
    return all(each is None or each == -1 for each in values)


def _all_off(value: Any) -> bool:
    values = value if isinstance(value, list) else [value]
    return all(map(_off, values))


_PROMPT = "log probabilities of prompts are not kept; those of the output are"
_WRITTEN = "of each written token, the most probable alternatives are reported, by top_logprobs_num"
_TEXT = "only text is served"
_LORA = "adapters are not served: a request visits several models"
_SESSION = "send the whole prompt again: what is known of it is found in the prefix caches"
_OLD = "OpenAI has replaced it by tools and tool_choice"
_DISAGGREGATED = "every model computes its own prefill"

NOT_SERVED: Mapping[str, tuple[_Test, str]] = {
    "best_of": (_one, "every sample is returned; ask for n of them"),
    "suffix": (_empty, "models continue a prompt, and do not fill gaps"),
    "logprob_start_len": (_output_only, _PROMPT),
    "token_ids_logprob": (_all_off, _WRITTEN),
    "functions": (_empty, _OLD),
    "function_call": (lambda value: value in (None, "none", "auto"), _OLD),
    "modalities": (_text, _TEXT),
    "audio": (_off, _TEXT),
    "image_data": (_empty, _TEXT),
    "audio_data": (_empty, _TEXT),
    "video_data": (_empty, _TEXT),
    "input_embeds": (_off, "the models that share a request have no embeddings in common"),
    "prediction": (_off, "predicted outputs are not served"),
    "web_search_options": (_off, "the server has no access to the web"),
    "session_params": (_empty, _SESSION),
    "lora_path": (_all_off, _LORA),
    "lora_id": (_all_off, _LORA),
    "custom_logit_processor": (_all_off, "it is executable code, which is not taken from requests"),
    "custom_params": (_empty, "they are for custom logit processors, which are not served"),
    "stream_interval": (_off, "every output is streamed as soon as it is there"),
    "return_hidden_states": (_all_off, "hidden states differ from model to model"),
    "bootstrap_host": (_off, _DISAGGREGATED),
    "bootstrap_port": (_off, _DISAGGREGATED),
    "bootstrap_room": (_off, _DISAGGREGATED),
    "data_parallel_rank": (_off, "every model is there once"),
    "background": (_off, "answers are not kept for later"),
}
"""Field to a test for the values that ask for nothing, and why others are refused."""

NO_EFFECT = frozenset(
    {
        "user",
        "metadata",
        "store",
        "service_tier",
        "safety_identifier",
        "prompt_cache_key",
        "log_metrics",
    }
)
"""Fields that change nothing in an answer here, as in SGLang."""


def check_fields(request: BaseModel, prefix: str = "") -> None:
    """Refuse what ``request`` asks for and is not served, and unknown fields.

    Raises:
        UnsupportedError: the first such field.
        RequestError: the first unknown field.
    """
    extra = request.model_extra or {}
    for name, value in request:
        entry = NOT_SERVED.get(name)
        if entry is None:
            if name in extra and name not in NO_EFFECT:
                known = type(request).model_fields.keys() - NOT_SERVED.keys()
                elsewhere = name == "json_schema" and "response_format" in known
                hint = "; give it as response_format" if elsewhere else nearest(name, known)
                field = prefix + cut(name)
                raise RequestError(f"{field}: unknown field{hint}", field)
            continue
        asks_nothing, reason = entry
        if not asks_nothing(value):
            raise UnsupportedError(f"{prefix}{name}: not served: {reason}", prefix + name)
