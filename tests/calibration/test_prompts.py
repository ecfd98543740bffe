"""What is asked."""

from __future__ import annotations

from pathlib import Path

import pytest

from tokenrouter.calibration import prompts
from tokenrouter.calibration.prompts import CHAT, COMPLETIONS, Prompt
from tokenrouter.errors import ConfigError

pytestmark = pytest.mark.timeout(20)


def test_every_form_of_a_line(tmp_path: Path) -> None:
    file = tmp_path / "prompts.jsonl"
    file.write_text(
        'Why?\n\n{"messages": [{"role": "system", "content": "s"}]}\n{"prompt": "p"}\n{"text": "t"}'
    )
    assert prompts.read(file) == [
        prompts.question("Why?"),
        Prompt(CHAT, {"messages": [{"role": "system", "content": "s"}]}),
        Prompt(COMPLETIONS, {"prompt": "p"}),
        Prompt(COMPLETIONS, {"prompt": "t"}),
    ]


def test_a_line_ends_where_files_say(tmp_path: Path) -> None:
    file = tmp_path / "prompts.jsonl"
    file.write_bytes('\ufeff{"text": "a\u2028b\x85c"}\r\nWhy\x0b?\r\n'.encode())
    assert prompts.read(file) == [
        Prompt(COMPLETIONS, {"prompt": "a\u2028b\x85c"}),
        prompts.question("Why\x0b?"),
    ]


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("a\n{b", "line 2: not JSON"),
        ('{"question": "a"}', "line 1: has neither messages nor a text"),
        (" \n", "has no prompts"),
    ],
)
def test_what_is_wrong_with_a_file(tmp_path: Path, content: str, complaint: str) -> None:
    file = tmp_path / "prompts"
    file.write_text(content)
    with pytest.raises(ConfigError, match=complaint):
        prompts.read(file)
    with pytest.raises(ConfigError, match="cannot be read"):
        prompts.read(tmp_path / "none")


def test_prompts_of_ours_differ() -> None:
    for every in (prompts.ours(), prompts.of_demo()):
        texts = [each.content["messages"][0]["content"] for each in every]
        assert len(set(texts)) == len(texts) >= 16
