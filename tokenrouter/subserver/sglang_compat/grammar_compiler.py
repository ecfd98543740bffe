"""Grammars of a member: compiled away from its loop, and kept for the next request.

`engine.py` asks for the grammar of a visit, and tells when the visit is gone; a quick lane and a
slow one, a thread each, compile and wake the loop when they have.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future
from functools import lru_cache
from typing import Any, NamedTuple

from xgrammar import CompiledGrammar, TokenizerInfo

from tokenrouter.errors import OverloadedError, RequestError
from tokenrouter.ipc.messages import Grammar
from tokenrouter.subserver.engine import Visit
from tokenrouter.subserver.sglang_compat import grammar_process
from tokenrouter.subserver.sglang_compat.apart import MOST, Apart, Limits, TooSlowError
from tokenrouter.subserver.sglang_compat.lanes import Lane

KEPT = 128
"""Compiled grammars: up to megabytes each, for a large vocabulary."""
MOST_WAITING = 256
"""Grammars that wait to be compiled; one more is refused."""
QUICK = Limits(cpu=1, wall=5.0)
"""What takes longer is begun again in the slow lane, where it holds up none but its like."""
QUICK_CHARACTERS = 4096
"""A longer grammar goes to the slow lane at once."""
LONGEST_QUEUE_S = 30.0
"""A grammar that had no turn for so long is refused, to be tried again."""


class Compiled(NamedTuple):
    """A grammar, and the ids that end the reasoning before it (none: it begins at once)."""

    grammar: CompiledGrammar
    think_end: tuple[int, ...]


class _Job:
    """A compilation, and the visits that wait for it."""

    def __init__(self, grammar: Grammar, eos_ids: tuple[int, ...]) -> None:
        self.grammar, self.eos_ids = grammar, eos_ids
        self.future: Future[Compiled] = Future()
        self.apart = Apart()
        self.waiting: set[Visit] = set()
        self.queued = time.monotonic()


class GrammarCompiler:
    """For one tokenizer.

    Args:
        vocabulary: ids from here on are never written.
        think_end: the ids that end a model's reasoning, which no grammar binds.
    """

    def __init__(self, tokenizer: Any, vocabulary: int, think_end: tuple[int, ...] = ()) -> None:
        self._tokenizer, self._vocabulary = tokenizer, vocabulary
        self._think_end = think_end
        self._quick = Lane[_Job]("grammars", lambda job: self._serve(job, QUICK))
        self._slow = Lane[_Job]("slow-grammars", lambda job: self._serve(job, MOST))
        self._known: OrderedDict[tuple[Grammar, tuple[int, ...]], _Job] = OrderedDict()
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
        job = self._known.get(key)
        if job is None or _may_succeed_now(job.future):
            if sum(not each.future.done() for each in self._known.values()) >= MOST_WAITING:
                raise OverloadedError(
                    f"{grammar.kind}: too many grammars are being compiled; retry", grammar.kind
                )
            job = self._known[key] = _Job(*key)
            short = len(grammar.text) <= QUICK_CHARACTERS
            (self._quick if short else self._slow).put(job)
            self._forget()
        self._known.move_to_end(key)
        if not job.future.done():
            job.waiting.add(visit)
            job.future.add_done_callback(lambda _: wake())
        return job.future

    def abandon(self, visit: Visit) -> None:
        """``visit`` is gone: what only it waits for is not compiled, or no further."""
        grammar = visit.sampling.grammar
        if grammar is None:
            return
        job = self._known.get((grammar, visit.eos_ids))
        if job is None or job.future is not visit.grammar:
            return
        job.waiting.discard(visit)
        if not job.waiting and not job.future.done():
            del self._known[grammar, visit.eos_ids]
            job.future.cancel()
            job.apart.cancel()
            self._quick.drop(job)
            self._slow.drop(job)

    def _forget(self) -> None:
        """Drop the least recently used that are done."""
        surplus = len(self._known) - KEPT
        done = [key for key, job in self._known.items() if job.future.done()]
        for key in done[: max(surplus, 0)]:
            del self._known[key]

    def _serve(self, job: _Job, limits: Limits) -> None:
        """In a thread: compile, or pass on to the slow lane, or tell why not."""
        future = job.future
        if not (future.running() or future.set_running_or_notify_cancel()):
            return
        try:
            result = self._compile(job, limits)
        except (TooSlowError, OverloadedError) as error:
            if limits is QUICK:
                job.queued = time.monotonic()
                self._slow.put(job)
            else:
                future.set_exception(_refusal(job, error))
        except Exception as error:  # noqa: BLE001 - the end of a thread's work, told to the loop
            future.set_exception(_refusal(job, error))
        else:
            future.set_result(result)

    def _compile(self, job: _Job, limits: Limits) -> Compiled:
        if time.monotonic() - job.queued > LONGEST_QUEUE_S:
            raise OverloadedError("too many grammars are being compiled; retry")
        info = self._info(job.eos_ids)
        compiled = grammar_process.compiled(info, job.grammar, job.apart, limits)
        return Compiled(compiled, self._think_end)

    def _tokenizer_info(self, eos_ids: tuple[int, ...]) -> TokenizerInfo:
        ends = [each for each in eos_ids if each < self._vocabulary]
        return grammar_process.tokenizer_info(self._tokenizer, self._vocabulary, ends)


def _refusal(job: _Job, error: Exception) -> Exception:
    """``error`` as a client may read it; a bug stays itself."""
    kind = job.grammar.kind
    if isinstance(error, OverloadedError):
        return OverloadedError(f"{kind}: {error}", kind)
    if isinstance(error, OSError):
        return OverloadedError(f"{kind}: no room to compile it: {error}", kind)
    if isinstance(error, ValueError | RuntimeError):
        return RequestError(f"{kind}: {error}", kind)
    return error


def _may_succeed_now(future: Future[Compiled]) -> bool:
    """Whether it failed for want of something, and not for what its grammar is."""
    return future.done() and isinstance(future.exception(), OverloadedError)
