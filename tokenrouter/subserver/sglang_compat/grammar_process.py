"""Compiles a grammar, and tries to follow it, in a process of its own (`apart.py`).

Grammars come from clients, and xgrammar trusts them: an empty regular expression ends the
process. Used by `grammar_compiler.py`, in its threads; what crosses is text, as xgrammar
serialises itself.
"""

from __future__ import annotations

import json
from typing import Any

from xgrammar import (
    CompiledGrammar,
    GrammarCompiler,
    StructuralTagItem,
    TokenizerInfo,
)

from tokenrouter.ipc.messages import Grammar
from tokenrouter.subserver.sglang_compat.apart import MOST, Apart, Limits
from tokenrouter.subserver.sglang_compat.calls_grammar import calls_grammar
from tokenrouter.subserver.sglang_compat.grammar_walk import walk

ANY_JSON = "$$ANY$$"
"""SGLang's word for a schema that all JSON satisfies."""


def tokenizer_info(tokenizer: Any, vocabulary: int, stop_ids: list[int]) -> TokenizerInfo:
    """What xgrammar knows of a Hugging Face tokenizer; ``stop_ids`` are not text.

    Raises:
        ValueError: xgrammar cannot read it.
    """

    def work() -> str:
        info = TokenizerInfo.from_huggingface(
            tokenizer, vocab_size=vocabulary, stop_token_ids=stop_ids
        )
        text: str = info.serialize_json()
        return text

    return TokenizerInfo.deserialize_json(Apart().run(work))


def compiled(
    info: TokenizerInfo, grammar: Grammar, apart: Apart, limits: Limits = MOST
) -> CompiledGrammar:
    """``grammar`` over the tokens of ``info``.

    Raises:
        TooSlowError: it takes more time than ``limits``.
        ValueError: it is not a grammar, or takes too much to compile or to follow.
        OverloadedError: there was no time to compile it, or ``apart`` was cancelled.
    """
    text = apart.run(lambda: _compile(info, grammar).serialize_json(), limits)
    return CompiledGrammar.deserialize_json(text, info)


def _compile(info: TokenizerInfo, grammar: Grammar) -> CompiledGrammar:
    compiler = GrammarCompiler(info, max_threads=1, cache_enabled=False)
    compiled = _by_kind(compiler, grammar.kind, grammar.text)
    walk(compiled)  # it may crash, too
    return compiled


def _by_kind(compiler: GrammarCompiler, kind: str, text: str) -> CompiledGrammar:
    match kind:
        case "json_schema" if text == ANY_JSON:
            return compiler.compile_builtin_json_grammar()
        case "json_schema":
            return compiler.compile_json_schema(text)
        case "regex":
            return compiler.compile_regex(text)
        case "ebnf":
            return compiler.compile_grammar(text)
        case "calls":
            return compiler.compile_grammar(calls_grammar(json.loads(text)))
        case _:
            return compiler.compile_structural_tag(*_structural_tag(text))


def _structural_tag(text: str) -> tuple[list[StructuralTagItem], list[str]]:
    """The tags and triggers of SGLang's ``{structures: [{begin, schema, end}], triggers}``."""
    tag = json.loads(text)
    try:
        items = [
            StructuralTagItem(
                begin=each["begin"], schema=json.dumps(each["schema"]), end=each["end"]
            )
            for each in tag["structures"]
        ]
        return items, tag["triggers"]
    except (KeyError, TypeError) as error:
        raise ValueError(f"needs structures (begin, schema, end) and triggers: {error}") from error
