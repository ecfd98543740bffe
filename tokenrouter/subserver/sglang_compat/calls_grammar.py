"""The grammar of tool calls, of the kind ``calls``: see `messages.Grammar`.

Used by `grammar_process.py`, in a process of its own.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from xgrammar import Grammar

from tokenrouter.subserver.sglang_compat.apart import PREFIX

_WHOLE = "all_calls"
"""Name of a rule; xgrammar gives none like it."""


def calls_grammar(calls: dict[str, Any]) -> Grammar:
    """What ``calls`` (the text of the grammar) says.

    Raises:
        ValueError: naming the field whose schema is none.
    """
    if "ebnf" in calls:
        for each in calls["alone"]:
            _made(each["field"], Grammar.from_ebnf, each["ebnf"])
        return Grammar.from_ebnf(calls["ebnf"])
    call = Grammar.union(*[_call(each) for each in calls["calls"]])
    if calls["separator"] is None:
        return call
    rule = f"{_WHOLE} ::= root ({json.dumps(calls['separator'])} root)*"
    return Grammar.from_ebnf(f"{call}\n{rule}\n", root_rule_name=_WHOLE)


def _call(call: dict[str, Any]) -> Grammar:
    schema = json.dumps(call["schema"])
    # One way to write white space: models that are forced would write it for ever.
    arguments = _made(
        call["field"], lambda text: Grammar.from_json_schema(text, any_whitespace=False), schema
    )
    return Grammar.concat(_literal(call["begin"]), arguments, _literal(call["end"]))


def _literal(text: str) -> Grammar:
    return Grammar.from_ebnf(f"root ::= {json.dumps(text)}")


def _made(field: str, make: Callable[[str], Grammar], text: str) -> Grammar:
    try:
        return make(text)
    except (ValueError, RuntimeError) as error:
        raise ValueError(f"{field}: {PREFIX.sub('', str(error)).strip()}") from error
