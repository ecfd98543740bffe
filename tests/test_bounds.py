"""The bounds that the documentation names are those of the code."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
NAMED = re.findall(
    r"`tokenrouter/([\w/]+)\.py` `(\w+) = (\d+)`", (ROOT / "docs" / "bounds.md").read_text()
)


def test_there_are_some() -> None:
    assert len(NAMED) > 10


@pytest.mark.parametrize(("module", "name", "value"), NAMED)
def test_a_documented_bound(module: str, name: str, value: str) -> None:
    found = importlib.import_module(f"tokenrouter.{module.replace('/', '.')}")
    assert getattr(found, name) == int(value)
