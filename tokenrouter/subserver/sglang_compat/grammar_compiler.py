"""Grammars of a member: compiled away from its loop, and kept for the next request.

`engine.py` asks for the grammar of a visit; threads compile, and wake the loop when they have.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import lru_cache
from typing import Any, NamedTuple

from xgrammar import CompiledGrammar, TokenizerInfo

from tokenrouter.errors import OverloadedError, RequestError
from tokenrouter.ipc.messages import Grammar
from tokenrouter.subserver.engine import Visit
from tokenrouter.subserver.sglang_compat import grammar_process

KEPT = 128
"""Compiled grammars: up to megabytes each, for a large vocabulary."""
AT_ONCE = 2
MOST_WAITING = 256
"""Grammars that wait to be compiled; one more is refused."""


class Compiled(NamedTuple):
    """A grammar, and the ids that end the reasoning before it (none: it begins at once)."""

    grammar: CompiledGrammar
    think_end: tuple[int, ...]


class GrammarCompiler:
    """For one tokenizer.

    Args:
        vocabulary: ids from here on are never written.
        think_end: the ids that end a model's reasoning, which no grammar binds.
    """

    def __init__(self, tokenizer: Any, vocabulary: int, think_end: tuple[int, ...] = ()) -> None:
        self._tokenizer, self._vocabulary = tokenizer, vocabulary
        self._think_end = think_end
        self._threads = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="grammar")
        self._known: OrderedDict[tuple[Grammar, tuple[int, ...]], Future[Compiled]] = OrderedDict()
        self._info = lru_cache(8)(self._tokenizer_info)

    def request(self, visit: Visit, wake: Callable[[], None]) -> Future[Compiled]:
        """The grammar of ``visit``, perhaps later: then ``wake`` is called, in another thread.

        It ends at any of the visit's ``eos_ids``. The future raises `RequestError` for what is
        no grammar.

        Raises:
            RequestError: the visit has none.
            OverloadedError: too many are waiting.
        """
        grammar = visit.sampling.grammar
        if grammar is None:
            raise RequestError("the request has no grammar")
        key = (grammar, visit.eos_ids)
        future = self._known.get(key)
        if future is None or _may_succeed_now(future):
            if sum(not each.done() for each in self._known.values()) >= MOST_WAITING:
                raise OverloadedError(
                    f"{grammar.kind}: too many grammars are being compiled; retry"
                )
            future = self._threads.submit(self._compile, grammar, visit.eos_ids)
            self._known[key] = future
            self._forget()
        self._known.move_to_end(key)
        if not future.done():
            future.add_done_callback(lambda _: wake())
        return future

    def _forget(self) -> None:
        """Drop the least recently used that are done."""
        surplus = len(self._known) - KEPT
        done = [key for key, future in self._known.items() if future.done()]
        for key in done[: max(surplus, 0)]:
            del self._known[key]

    def _compile(self, grammar: Grammar, eos_ids: tuple[int, ...]) -> Compiled:
        try:
            compiled = grammar_process.compiled(self._info(eos_ids), grammar)
        except (ValueError, RuntimeError) as error:
            raise RequestError(f"{grammar.kind}: {error}", grammar.kind) from error
        except OSError as error:
            raise OverloadedError(f"{grammar.kind}: no room to compile it: {error}") from error
        return Compiled(compiled, self._think_end)

    def _tokenizer_info(self, eos_ids: tuple[int, ...]) -> TokenizerInfo:
        ends = [each for each in eos_ids if each < self._vocabulary]
        return grammar_process.tokenizer_info(self._tokenizer, self._vocabulary, ends)


def _may_succeed_now(future: Future[Compiled]) -> bool:
    """Whether it failed for want of something, and not for what its grammar is."""
    return future.done() and isinstance(future.exception(), OverloadedError)
