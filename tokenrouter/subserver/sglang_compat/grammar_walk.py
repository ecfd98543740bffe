"""What following a grammar costs: seen along a few paths before a request may use it.

Called by `grammar_process.py` in a process of its own, so that a grammar whose masks explode
(nested repetitions, ambiguous rules) is refused before a member's loop meets it. `matching.py`
times the calls of the loop by the same clock: the walk cannot see every path.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import NamedTuple, TypeVar

import numpy
import numpy.typing
from xgrammar import CompiledGrammar, GrammarMatcher, allocate_token_bitmask

TOO_SLOW = "takes too long to follow; make it simpler"
Result = TypeVar("Result")


class Budget(NamedTuple):
    """``call``: CPU seconds that one call of a matcher may take; ``total``: that all may."""

    call: float
    total: float

    def over(self, vocabulary: int) -> Budget:
        """The budget where a mask is over so many tokens: useful schemas have been seen to need
        0.33 s over 150,000.
        """
        scale = 1 + vocabulary / TOKENS_A_BUDGET
        return Budget(self.call * scale, self.total * scale)


WALK = Budget(call=0.05, total=1.0)
"""At its total the walk ends, content. Its calls may take half of what the loop's may."""
TOKENS_A_BUDGET = 16384
PATHS = 2
LONGEST_PATH = 64


class SlowCallError(ValueError):
    """A call of a matcher took too long."""


class Timer:
    """CPU time of this thread in the calls of one matcher."""

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self.spent = 0.0

    def __call__(self, call: Callable[..., Result], *arguments: object) -> Result:
        """What ``call`` returns.

        Raises:
            SlowCallError: it took more than its budget.
        """
        start = time.thread_time()
        result = call(*arguments)
        took = time.thread_time() - start
        self.spent += took
        if took > self._budget.call:
            raise SlowCallError(TOO_SLOW)
        return result

    @property
    def exhausted(self) -> bool:
        """Whether all calls together took more than they may."""
        return self.spent > self._budget.total


def walk(compiled: CompiledGrammar, budget: Budget = WALK) -> None:
    """Follow ``compiled`` along paths that are the same at each try.

    The first path draws any token that is allowed; the second repeats one while it can.

    Raises:
        SlowCallError: a call took more than its budget.
    """
    vocabulary = compiled.tokenizer_info.vocab_size
    ends = list(compiled.tokenizer_info.stop_token_ids)
    masks = allocate_token_bitmask(1, vocabulary)
    bits = masks[0].numpy().view(numpy.uint8)
    timed = Timer(budget.over(vocabulary))
    for path in range(PATHS):
        rng = random.Random(path)
        matcher = timed(GrammarMatcher, compiled)
        last = -1
        for _ in range(LONGEST_PATH):
            timed(matcher.fill_next_token_bitmask, masks)
            allowed = numpy.unpackbits(bits, bitorder="little")[:vocabulary]
            allowed[ends] = 0
            if not (path and last >= 0 and allowed[last]):
                last = _any(allowed, rng)
            if last < 0 or timed.exhausted:
                break
            timed(matcher.accept_token, last)


def _any(allowed: numpy.typing.NDArray[numpy.uint8], rng: random.Random) -> int:
    ids = numpy.flatnonzero(allowed)
    return int(ids[rng.randrange(len(ids))]) if len(ids) else -1
