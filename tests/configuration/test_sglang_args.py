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
