"""The grammar of tool calls takes what the schemas take, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest
from xgrammar.testing import _is_grammar_accept_string as accepts

from tokenrouter.subserver.sglang_compat.calls_grammar import calls_grammar

EMPTY = {"type": "object", "properties": {}, "additionalProperties": False}


def of(schema: Any) -> Any:
    return {"type": "object", "properties": {"a": schema}, "required": ["a"]}


def call(name: str, schema: Any) -> dict[str, Any]:
    return {"begin": f'<c>\n"{name}" é:', "schema": schema, "end": "}\n</c>", "field": name}


def written(name: str, arguments: str) -> str:
    return f'<c>\n"{name}" é:{arguments}}}\n</c>'


@pytest.mark.parametrize("separator", [None, "\n"])
@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        (of({"type": "array", "items": {"type": "boolean"}}), ["[]", "[true, false]"], ["[0.4]"]),
        (of({"anyOf": [{"type": "boolean"}, {"type": "null"}]}), ["true", "null"], ["{}", "1"]),
        (of({"type": "integer", "enum": [1, 2]}), ["1", "2"], ["3", '"1"']),
        (of(of({"type": "string"})), ['{"a": "}\\n</c>"}'], ["{}", '{"a": 1}']),
        (
            {**of({"$ref": "#/$defs/all_calls"}), "$defs": {"all_calls": of({"const": "x"})}},
            ['{"a": "x"}'],
            ['{"a": "y"}'],
        ),
    ],
)
def test_schemas(schema: Any, good: list[str], bad: list[str], separator: str | None) -> None:
    calls = [call("f", schema), call("g", EMPTY)]
    grammar = calls_grammar({"calls": calls, "separator": separator})
    for value in good:
        assert accepts(grammar, written("f", f'{{"a": {value}}}')), value
    for value in bad:
        assert not accepts(grammar, written("f", f'{{"a": {value}}}')), value
    one, other = written("f", f'{{"a": {good[0]}}}'), written("g", "{}")
    assert accepts(grammar, other)
    assert accepts(grammar, f"{one}\n{other}\n{one}") == (separator is not None)
    assert not accepts(grammar, "") and not accepts(grammar, other + "\n")
    assert not accepts(grammar, written("g", f'{{"a": {good[0]}}}'))


@pytest.mark.parametrize(
    "calls",
    [
        {"calls": [call("f", EMPTY), call("g", of({"type": "text"}))], "separator": None},
        {"ebnf": "root ::= x", "alone": [{"field": "g", "ebnf": "root ::= x"}]},
    ],
)
def test_what_is_wrong_is_named(calls: Any) -> None:
    with pytest.raises(ValueError, match=r"^g: (?!\[)"):
        calls_grammar(calls)
