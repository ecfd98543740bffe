"""What the manual names exists, and what exists is in the manual."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer.main

from tokenrouter import cli
from tokenrouter.cli_options import flag_of
from tokenrouter.config import Config

ROOT = Path(__file__).parent.parent
MANUAL = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])
ALGORITHMS = ROOT / "tokenrouter" / "schedulers" / "README.md"
FLAG = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]*")
ELSEWHERE = re.compile(r"benchmarks/|tokenrouter\.demo\.|launch/demo\.sh")
"""Commands that are not `tokenrouter`'s have flags of their own."""
OF_OTHERS = {"--engine", "--plot"}
"""Flags of benchmarks that stand alone in a sentence about them."""


@cache
def options() -> dict[str, frozenset[str]]:
    """The flags of each command."""
    group: Any = typer.main.get_command(cli.app)
    return {
        name: frozenset(flag for each in command.params for flag in each.opts if "--" in flag)
        for name, command in group.commands.items()
    }


def named() -> set[str]:
    """The flags that the manual names, but for other commands' lines."""
    lines = [line for path in MANUAL for line in path.read_text().splitlines()]
    return {flag for line in lines if not ELSEWHERE.search(line) for flag in FLAG.findall(line)}


def anchors(text: str) -> set[str]:
    """The fragments of a page's headings, as GitHub makes them."""
    plain = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.+)$", plain, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", each.lower()).replace(" ", "-") for each in headings}


def test_every_flag_of_the_manual_exists() -> None:
    known = {flag for flags in options().values() for flag in flags}
    assert named() - known - OF_OTHERS == set()


def test_the_manual_names_every_flag() -> None:
    """Those of a configuration's keys follow from the keys, which it lists."""
    of_keys = {flag_of(name) for name in Config.model_fields}
    for name, flags in options().items():
        assert flags - of_keys - named() == set(), name


def test_the_request_of_the_manual_can_be_sent() -> None:
    bodies = re.findall(r"--json '(.*?)'", (ROOT / "README.md").read_text(), re.DOTALL)
    assert [json.loads(body)["model"] for body in bodies] == ["demo"]


@pytest.mark.parametrize("path", [*MANUAL, ALGORITHMS], ids=lambda path: path.name)
def test_links_lead_somewhere(path: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", path.read_text()):
        if target.startswith("https://"):
            continue
        file, _, anchor = target.partition("#")
        page = path.parent / file if file else path
        assert page.is_file(), target
        assert not anchor or anchor in anchors(page.read_text()), target
