"""Does work for grammars in a process of its own, which may crash, loop or eat memory.

Grammars come from clients, and xgrammar trusts them: an empty regular expression ends the
process. Used by `grammar_compiler.py`, in its threads; what crosses is text, as xgrammar
serialises itself. So the interpreter's lock, which a member's loop needs, is never held long.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import time
from collections.abc import Callable
from typing import Any

from xgrammar import (
    CompiledGrammar,
    GrammarCompiler,
    GrammarMatcher,
    StructuralTagItem,
    TokenizerInfo,
    allocate_token_bitmask,
)

from tokenrouter.ipc.messages import Grammar
from tokenrouter.processes.kernel import die_with
from tokenrouter.subserver.sglang_compat.calls_grammar import PREFIX, calls_grammar

CPU_SECONDS = 20
"""The work may take so long."""
MASK_SECONDS = 0.2
"""The first mask may take so long: later ones are made by the member's loop."""
MEMORY_BYTES = 2 << 30
"""The work may use so much more memory than there is."""
ANY_JSON = "$$ANY$$"
"""SGLang's word for a schema that all JSON satisfies."""
_OK, _WRONG = b"+", b"-"


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

    return TokenizerInfo.deserialize_json(run_apart(work))


def compiled(info: TokenizerInfo, grammar: Grammar) -> CompiledGrammar:
    """``grammar`` over the tokens of ``info``.

    Raises:
        ValueError: it is not a grammar, or too large a one.
    """
    text = run_apart(lambda: _compile(info, grammar).serialize_json())
    return CompiledGrammar.deserialize_json(text, info)


def run_apart(work: Callable[[], str]) -> str:
    """What ``work`` returns in a forked process; blocks this thread alone.

    Raises:
        ValueError: it raised, ended its process, or took too much.
        OSError: the machine has no room for a process.
    """
    reader, writer = os.pipe()
    with os.fdopen(reader, "rb") as pipe:
        parent = os.getpid()
        try:
            pid = os.fork()
            if pid == 0:
                _child(parent, writer, work)
        finally:
            os.close(writer)
        kind, text = pipe.read(1), pipe.read().decode("utf-8", "replace")
    _, status = os.waitpid(pid, 0)
    if kind == _OK and status == 0:
        return text
    if kind == _WRONG:
        raise ValueError(PREFIX.sub("", text).strip())
    if -os.waitstatus_to_exitcode(status) in (signal.SIGXCPU, signal.SIGKILL):
        raise ValueError(f"takes more than {CPU_SECONDS} s to compile; make it simpler")
    raise ValueError("xgrammar cannot compile it; is a part of it empty, or too deep?")


def _child(parent: int, writer: int, work: Callable[[], str]) -> None:
    """Write the result of ``work``, or what is wrong, and end without cleaning up."""
    status = 1
    try:
        # Nothing of the member may be held open, or its peers could not see it die.
        os.dup2(writer, 0)
        os.closerange(1, os.sysconf("SC_OPEN_MAX"))
        die_with(parent)
        _limit()
        os.nice(5)
        _write(_OK + work().encode())
        status = 0
    except MemoryError:
        _write(_WRONG + b"takes too much memory to compile; make it simpler")
    except Exception as error:  # noqa: BLE001 - the end of a process, told to its parent
        _write(_WRONG + str(error).encode("utf-8", "backslashreplace"))
    finally:
        os._exit(status)


def _limit() -> None:
    with open("/proc/self/statm", encoding="ascii") as file:
        pages = int(file.read().split()[0])
    memory = pages * resource.getpagesize() + MEMORY_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    signal.signal(signal.SIGXCPU, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS + 1))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _write(data: bytes) -> None:
    while data:
        data = data[os.write(0, data) :]


def _compile(info: TokenizerInfo, grammar: Grammar) -> CompiledGrammar:
    compiler = GrammarCompiler(info, max_threads=1, cache_enabled=False)
    compiled = _by_kind(compiler, grammar.kind, grammar.text)
    # What crashes a matcher shows at its first mask.
    mask = allocate_token_bitmask(1, info.vocab_size)
    matcher = GrammarMatcher(compiled)
    start = time.process_time()
    matcher.fill_next_token_bitmask(mask)
    if time.process_time() - start > MASK_SECONDS:
        raise ValueError("takes too long to follow; make it simpler")
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
