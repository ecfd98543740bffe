"""Grammars that explode are refused before a loop follows them; others are not."""

from __future__ import annotations

import pytest
from transformers import AutoTokenizer
from xgrammar import TokenizerInfo

from tests.integration.models import DEMO
from tokenrouter.ipc.messages import Grammar
from tokenrouter.subserver.sglang_compat import grammar_process, grammar_walk
from tokenrouter.subserver.sglang_compat.apart import Apart
from tokenrouter.subserver.sglang_compat.grammar_walk import Budget, SlowCallError, walk

pytestmark = pytest.mark.timeout(60)

NESTED = "[a-zA-Z ]((.{0,50}){0,50}){0,9}z"
"""Its masks take longer with every character."""
RULES = [f"s{i} ::= s{(i + 1) % 40} s{(i + 7) % 40} | [a-z]* s{(i + 3) % 40}" for i in range(40)]
AMBIGUOUS = "\n".join(["root ::= [a-z] s", "s ::= s0 | [a-z]* s", *RULES])
"""Its tokens do."""


@pytest.fixture(scope="module")
def info() -> TokenizerInfo:
    return grammar_process.tokenizer_info(AutoTokenizer.from_pretrained(DEMO / "small"), 300, [260])


def compiled(info: TokenizerInfo, kind: str, text: str) -> object:
    return grammar_process.compiled(info, Grammar(kind, text), Apart())


@pytest.mark.parametrize(("kind", "text"), [("regex", NESTED), ("ebnf", AMBIGUOUS)])
def test_what_explodes_is_refused(info: TokenizerInfo, kind: str, text: str) -> None:
    with pytest.raises(ValueError, match="too long to follow"):
        compiled(info, kind, text)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("regex", "a"), ("regex", "(.{0,200}\n){1,20}END"), ("json_schema", "$$ANY$$"),
        ("json_schema", '{"type":"array","items":{"type":"string","maxLength":300}}'),
        ("ebnf", 'root ::= "(" root ")" | [a-z]+'),
    ],
)  # fmt: skip
def test_what_does_not_is_compiled(info: TokenizerInfo, kind: str, text: str) -> None:
    assert compiled(info, kind, text)


def test_one_call_counts_and_not_all(info: TokenizerInfo, monkeypatch: pytest.MonkeyPatch) -> None:
    grammar = compiled(info, "regex", "[a-z]+")
    clock = iter(range(10**6))
    monkeypatch.setattr(grammar_walk.time, "thread_time", lambda: next(clock))
    walk(grammar, Budget(call=1, total=5))
    assert next(clock) < 30, "it ends at its total"
    walk(grammar, Budget(call=1, total=10**9))
    assert next(clock) > 400
    with pytest.raises(SlowCallError):
        walk(grammar, Budget(call=0.5, total=10**9))


def test_a_large_vocabulary_may_take_longer() -> None:
    assert Budget(0.05, 1.0).over(256).call < 0.055
    assert 0.33 < Budget(0.05, 1.0).over(150_000).call < 0.6
