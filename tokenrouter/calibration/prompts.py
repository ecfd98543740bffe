"""What a deployment is asked while it is measured: prompts of a file, of the demo, or of ours."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenrouter.errors import ConfigError

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
FORMS = '{"messages": [...]}, {"prompt": "..."} or {"text": "..."}'
DEMO_PROMPTS = 32
OURS = (
    "Why is the sky blue, and why is it red in the evening? Answer in one paragraph.",
    "A train leaves at 9:40 and travels 210 km at 84 km/h. When does it arrive? Show each step.",
    "Write a Python function that merges two sorted lists, and explain its running time.",
    "Summarise the causes of the First World War in five sentences.",
    "Translate into French: The library closes at six, but the reading room stays open till ten.",
    "Give three arguments for and three against a four-day working week.",
    "What is the derivative of x^2 sin(x)? Show how the product rule gives it.",
    "Write a short story about a lighthouse keeper who finds a message in a bottle.",
    "A shop sells pens at 3 for $4. How much do 18 pens cost, and how many can I buy for $50?",
    "Explain to a child how vaccines work.",
    "Write an SQL query for the three customers with the largest total of orders in 2023.",
    "Which is larger, 2^100 or 3^63? Explain how to tell without a calculator.",
    "List the planets from the Sun outwards, each with one remarkable fact.",
    "How does TCP make sure that data arrives complete and in order?",
    "Draft a polite e-mail that asks a landlord to repair a broken heater before the weekend.",
    "If all bloops are razzies and some razzies are lazzies, are some bloops lazzies? Why?",
)


@dataclass(frozen=True)
class Prompt:
    """The part of a request's body that is asked, and the endpoint that takes it."""

    endpoint: str
    content: dict[str, Any]


def question(text: str) -> Prompt:
    """What a user says in a chat."""
    return Prompt(CHAT, {"messages": [{"role": "user", "content": text}]})


def ours() -> list[Prompt]:
    """A handful for models of any kind."""
    return [question(text) for text in OURS]


def of_demo() -> list[Prompt]:
    """Problems that the demo pair was not trained on."""
    from tokenrouter.demo.task import problems

    drawn = itertools.islice(problems("held_out", "calibrate"), DEMO_PROMPTS)
    return [question(problem.question) for problem in drawn]


def read(path: Path) -> list[Prompt]:
    """The prompts of a file, one a line.

    A line is a question to the chat model, or a JSON object: ``messages`` of a chat, or ``prompt``
    or ``text``, which no chat template is put around. Empty lines are skipped. Of what Unicode
    calls the end of a line, only that of text files is one: JSON may hold the others.

    Raises:
        ConfigError: it cannot be read, or a line is none of these.
    """
    try:
        lines = path.read_text(encoding="utf-8-sig").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--prompts: {path} cannot be read: {error}") from error
    found = list(_parsed(lines, path))
    if not found:
        raise ConfigError(f"--prompts: {path} has no prompts; write one a line")
    return found


def _parsed(lines: Iterable[str], path: Path) -> Iterable[Prompt]:
    for number, line in enumerate(lines, start=1):
        text = line.strip()
        if text.startswith("{"):
            yield _object(text, f"--prompts: {path}, line {number}")
        elif text:
            yield question(text)


def _object(line: str, where: str) -> Prompt:
    try:
        content = json.loads(line)
    except json.JSONDecodeError as error:
        raise ConfigError(f"{where}: not JSON ({error}); write {FORMS}") from error
    if isinstance(messages := content.get("messages"), list) and messages:
        return Prompt(CHAT, {"messages": messages})
    for key in ("prompt", "text"):
        if isinstance(text := content.get(key), str) and text:
            return Prompt(COMPLETIONS, {"prompt": text})
    raise ConfigError(f"{where}: has neither messages nor a text; write {FORMS}")
