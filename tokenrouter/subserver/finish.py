"""When a request ends: decided by its home, token by token, as SGLang decides it.

Order of checks: length, end-of-sequence and stop ids, stop strings. Reasons have
SGLang's JSON shape, which its detokenizer and OpenAI handlers understand.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

from tokenrouter.ipc.messages import Sampling

Finish = dict[str, Any]
Decode = Callable[[Sequence[int]], str]


class FinishRule:
    """The finish of one request.

    Args:
        sampling: its limits.
        eos_ids: end-of-sequence ids of every member it may visit.
        decode: ids to text, special tokens included.
    """

    def __init__(self, sampling: Sampling, eos_ids: Collection[int], decode: Decode) -> None:
        self._limit = sampling.max_new_tokens
        self._stop = sampling.stop
        ids = {*eos_ids, *sampling.stop_token_ids}
        if sampling.ignore_eos:
            # What matches a grammar whole goes on with an end, or not at all.
            ids = set(eos_ids) if sampling.grammar is not None else set()
        self._ends = frozenset(ids)
        self._decode = decode
        # A stop string of n bytes spans at most n tokens that carry text; one more for a
        # token that begins before it.
        self._window = 1 + max((len(text.encode()) for text in sampling.stop), default=0)

    def full(self, count: int) -> Finish | None:
        """The finish of a request with ``count`` output tokens that may not grow."""
        return {"type": "length", "length": self._limit} if count >= self._limit else None

    def after(self, tokens: Sequence[int], prompt_length: int, length: int) -> Finish | None:
        """The finish that the last of the first ``length`` tokens causes, if any.

        ``tokens``: prompt and output.
        """
        if length - prompt_length >= self._limit:
            return self.full(length - prompt_length)
        last = tokens[length - 1]
        if last in self._ends:
            return {"type": "stop", "matched": last}
        if self._stop:
            tail = self._decode(tokens[max(prompt_length, length - self._window) : length])
            for text in self._stop:
                if text in tail:
                    return {"type": "stop", "matched": text}
        return None


def aborted(message: str, status: int | None = None, field: str | None = None) -> Finish:
    """The finish of a request that ends without an answer.

    ``status`` is HTTP's; ``field``: as in `messages.Failed`.
    """
    finish: Finish = {"type": "abort", "message": message}
    if status is not None:
        finish["status_code"] = status
        finish["err_type"] = "InternalServerError" if status == 500 else "ServiceUnavailable"
    if field is not None:
        finish["field"] = field
    return finish
