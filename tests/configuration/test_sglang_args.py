"""The names that SGLang takes, read from its source."""

from __future__ import annotations

import pytest

from tokenrouter.configuration.sglang_args import REFUSED, argument_types, check


def test_they_are_those_of_the_installed_sglang() -> None:
    types = argument_types()
    assert types["model_path"] == "str"
    assert types["disable_radix_cache"] == "bool"
    assert len(types) > 150


def test_what_is_refused_exists() -> None:
    assert not REFUSED.keys() - argument_types().keys()


def test_values_are_checked_as_far_as_their_type_is_simple() -> None:
    check({"watchdog_timeout": 3, "attention_backend": None, "cuda_graph_bs": [1, 2]}, ())
    with pytest.raises(ValueError, match=r"base_gpu_id: SGLang wants int, got 'x'"):
        check({"base_gpu_id": "x"}, ())


def test_values_that_cannot_be_served() -> None:
    check({"grammar_backend": "none"}, ())
    with pytest.raises(ValueError, match=r"grammar_backend: must be xgrammar or none, got 'outl"):
        check({"grammar_backend": "outlines"}, ())


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("quantization", "fp99"),
        ("attention_backend", "nope"),
        ("kv_cache_dtype", "fp8"),
        ("tool_call_parser", "qwen99"),
        ("reasoning_parser", "foo"),
        ("log_requests_level", 9),
    ],
)
def test_values_that_sglang_does_not_know(name: str, value: object) -> None:
    with pytest.raises(ValueError, match=rf"^{name}: must be \w.*, .* or .*, got {value!r}$"):
        check({name: value}, ())
    check(dict.fromkeys(("quantization", "attention_backend", "tool_call_parser")), ())
