"""Where the output of one visit stands in its grammar: every committed token, whoever wrote it.

Used by `rules.py`. The state is made again from the visit's tokens after an eviction, and goes
back where tokens were taken back.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy
import torch
from xgrammar import GrammarMatcher, allocate_token_bitmask, apply_token_bitmask_inplace

from tokenrouter.subserver.engine import Seen, Visit
from tokenrouter.subserver.sglang_compat.grammar_compiler import Compiled
from tokenrouter.subserver.sglang_compat.grammar_walk import TOO_SLOW, Budget, SlowCallError, Timer

PROMPT_TAIL = 8
"""A prompt that closes the reasoning itself does so with so many tokens after that, at most."""
BUDGET = Budget(call=0.1, total=1.0)
"""Of the calls for one mask, which the whole loop waits for: more than one or two only where
tokens of other members, or of before an eviction, are followed."""
ALL = -1
"""A word of a mask that allows every id."""


class Matching:
    """Of one visit. Reasoning comes before what the grammar binds, unless the prompt ends it."""

    def __init__(self, visit: Visit, compiled: Compiled) -> None:
        self._compiled = compiled
        self._end = list(compiled.think_end)
        start = max(visit.prompt_length - len(self._end) - PROMPT_TAIL, 0)
        self._reasons = bool(self._end) and not any(
            visit.tokens[i : i + len(self._end)] == self._end
            for i in range(start, visit.prompt_length - len(self._end) + 1)
        )
        self._too_slow = False
        self._budget = BUDGET.over(compiled.grammar.tokenizer_info.vocab_size)
        self._timed = Timer(self._budget)
        self._restart(visit)

    def mask(self, visit: Visit, length: int, mask: torch.Tensor) -> str | None:
        """Write which ids may follow the first ``length`` tokens into ``mask``; or why none can.

        ``mask``: one row as `new_masks` makes them, all ids allowed.
        """
        if self._too_slow:
            return f"its grammar {TOO_SLOW}"
        self._timed = Timer(self._budget)
        try:
            self._follow(visit, length)
            if self._begun and not self._matcher.is_terminated():
                self._timed(self._matcher.fill_next_token_bitmask, mask)
                if not mask.any():
                    return "its grammar allows no token here"
        except SlowCallError as error:
            self._too_slow = True  # a visit without control is not ended yet
            return f"its grammar {error}"
        except (RuntimeError, ValueError) as error:
            self._restart(visit)  # to find the same again
            return f"its grammar cannot be followed: {error}"
        return None

    def _restart(self, visit: Visit) -> None:
        self._matcher = GrammarMatcher(self._compiled.grammar)
        self._seen = Seen(visit.prompt_length, len(visit.cuts))
        self._begun = not self._reasons
        self._tail: list[int] = []
        self._accepted: list[int] = []

    def _follow(self, visit: Visit, length: int) -> None:
        known = self._seen.length
        stands, fresh = self._seen.news(visit, length)
        if back := known - stands:
            if back > len(self._accepted) or self._matcher.is_terminated():
                self._restart(visit)
                _, fresh = self._seen.news(visit, length)
            else:
                self._timed(self._matcher.rollback, back)
                del self._accepted[-back:]
        self._accept(fresh)

    def _accept(self, tokens: Sequence[int]) -> None:
        for token in tokens:
            if not self._begun:
                self._tail = [*self._tail, token][-len(self._end) :]
                self._begun = self._tail == self._end
            elif self._matcher.is_terminated():
                return  # a visit may run on until it hears of its end
            elif self._timed(self._matcher.accept_token, token):
                self._accepted.append(token)
                if self._timed.exhausted:
                    raise SlowCallError(TOO_SLOW)
            else:
                raise ValueError(f"token {token} after {len(self._accepted)} others")


def new_masks(rows: int, vocabulary: int) -> torch.Tensor:
    """Bits, one row each, that allow every id."""
    masks: torch.Tensor = allocate_token_bitmask(rows, vocabulary)
    return masks


def leaves(mask: torch.Tensor, ids: Sequence[int]) -> bool:
    """Whether ``mask`` (one row) allows anything besides ``ids``."""
    words = mask.clone().numpy().view(numpy.uint32)
    for each in ids:
        words[each // 32] &= ~numpy.uint32(1 << each % 32)
    return bool(words.any())


def apply(logits: torch.Tensor, masks: torch.Tensor) -> None:
    """Make every id that ``masks`` forbid impossible, in place."""
    apply_token_bitmask_inplace(logits, masks.to(logits.device, non_blocking=True))
