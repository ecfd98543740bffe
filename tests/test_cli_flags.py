"""Flags that may be followed by several values."""

from __future__ import annotations

import pytest

from tokenrouter.cli_flags import expand


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("--threshold a=1 b=3", "--threshold a=1 --threshold b=3"),
        (
            "--threshold a=1 b=2 c=3 --port 3",
            "--threshold a=1 --threshold b=2 --threshold c=3 --port 3",
        ),
        ("--threshold=a=1 b=3", "--threshold=a=1 --threshold b=3"),
        ("--model a=x --model b=y", "--model a=x --model b=y"),
        ("serve --port 3 x", "serve --port 3 x"),
        ("--threshold --port 3", "--threshold --port 3"),
        ("--share 0.05 1 http://h", "--share 0.05 --share 1 http://h"),
        ("", ""),
    ],
)
def test_expand(given: str, meant: str) -> None:
    assert expand(given.split()) == meant.split()
