"""Quotes of what clients sent."""

from __future__ import annotations

import pytest

from tokenrouter.frontend.quoting import LONGEST_QUOTE, cut, quoted


@pytest.mark.parametrize("value", ["demo", "", None, 0.5, "x" * 190, "it's"])
def test_what_is_short_is_quoted_whole(value: object) -> None:
    assert quoted(value) == repr(value)


def test_what_is_long_is_cut() -> None:
    assert quoted("x" * 10**7) == "'" + "x" * (LONGEST_QUOTE - 1) + "..."
    assert cut("x" * 300) == "x" * LONGEST_QUOTE + "..."
