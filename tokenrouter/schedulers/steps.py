"""Where a step of reasoning ends: at a delimiter in its text, told token by token."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tokenrouter.schedulers.arguments import text

BLANK_LINE = "\n\n"
PART = "\ufffd"
"""In the text of tokens that have a character in part."""
MOST_KEPT = 4096
"""Ids of which a delimiter remembers whether they may complete it."""


class Delimiter:
    """A text that may be spread over several tokens, or lie in the middle of one.

    The step that it ends includes the whole token that completes it.

    Args:
        argument: by which the configuration calls it, for its error.
    """

    def __init__(self, delimiter: str, argument: str = "delimiter") -> None:
        self._text = text(argument, delimiter)
        # Each of the tokens over which it spreads has a byte of it; one more, as a character
        # may be split between tokens before it.
        self._window = 1 + len(delimiter.encode())
        self._last = delimiter[-1]
        self._candidates: dict[int, bool] = {}

    def completed(
        self,
        decode: Callable[[Sequence[int]], str],
        tokens: Sequence[int],
        start: int,
        token: int,
    ) -> bool:
        """Whether ``token`` after ``tokens`` completes it.

        Only what lies at positions from ``start`` on counts, and only its last few tokens are
        decoded, if need be: the delimiter must not be among ``tokens[start:]`` yet. ``decode``
        is always the same vocabulary's.
        """
        if not self._may_complete(decode, token):
            return False
        first = max(start, len(tokens) + 1 - self._window)
        return self._text in decode([*tokens[first:], token])

    def _may_complete(self, decode: Callable[[Sequence[int]], str], token: int) -> bool:
        """Whether ``token`` has the last character or a part of it; kept for the first ids met."""
        known = self._candidates.get(token)
        if known is None:
            alone = decode([token])
            # Some vocabularies drop a space at the beginning of a text.
            known = self._last in alone or self._last == " " or PART in alone
            if len(self._candidates) < MOST_KEPT:
                self._candidates[token] = known
        return known
