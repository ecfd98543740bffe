"""An answer in which each model's text can be told apart."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from tokenrouter.demo import show

ANSWER = {
    "choices": [{"message": {"content": "1+2=3é"}}],
    "routing": {
        "tokens": {"small": 5, "large": 3},
        "hand_overs": 4,
        "token_models": [["small"] * 4 + ["large"] + ["large"] * 2 + ["small"]],
    },
    "llm_ratio": 0.375,
}


def test_runs_of_one_writer() -> None:
    writers = ["a", "a", "b", "a", "a"]
    assert show.runs("12é4", writers) == [("a", "12"), ("b", "\ufffd"), ("a", "\ufffd4")]
    assert show.runs("12", ["a", "b", "b"]) == [("a", "1"), ("b", "2")], "the end has no text"


def test_marks_where_there_are_no_colours(capsys: pytest.CaptureFixture[str]) -> None:
    show.show(ANSWER)
    said = capsys.readouterr().out
    assert said.startswith("1+2=[3é]\n")
    assert "small 5 tokens, [large] 3 tokens, 4 hand-overs, LLM ratio 37.5%" in said


def test_colours_on_a_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    show.show(ANSWER)
    said = capsys.readouterr().out
    assert "\x1b[1;35m3é" in said
    assert "[3" not in said.replace("\x1b[", "")


def test_a_server_that_does_not_start_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    script = "import sys; print('no weights', file=sys.stderr)"
    monkeypatch.setattr(show, "SERVER", (sys.executable, "-c", script))
    with pytest.raises(RuntimeError, match="the server did not start\nno weights"), show.server():
        pass


def test_how_to_talk_names_the_server() -> None:
    text = show.how_to_talk("http://h:1", "demo")
    assert "curl http://h:1/v1/chat/completions" in text
    assert 'base_url="http://h:1/v1"' in text
    assert show.question() in text
    assert 'api_key="none"' in text and "Authorization" not in text


def test_how_to_talk_to_a_server_with_a_key() -> None:
    text = show.how_to_talk("http://h:1", "demo", keyed=True)
    assert '-H "Authorization: Bearer $TOKENROUTER_API_KEY" -d' in text
    assert "import os\n  from openai" in text
    assert 'api_key=os.environ["TOKENROUTER_API_KEY"])' in text


@pytest.mark.timeout(120)
def test_once_from_start_to_stop() -> None:
    command = [sys.executable, "-m", "tokenrouter.demo.show", ""]
    said = subprocess.run(command, capture_output=True, text=True, check=True)
    assert said.stderr == ""
    asked, answer, _, legend = said.stdout.splitlines()
    assert asked == show.question()
    assert re.search(r"\[[^\]]+\]", answer), "nothing of the large model"
    counts = re.fullmatch(
        r"small (\d+) tokens, \[large\] (\d+) tokens, (\d+) hand-overs, .*", legend
    )
    assert counts
    assert all(int(count) > 0 for count in counts.groups())
