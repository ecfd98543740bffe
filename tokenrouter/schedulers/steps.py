"""Where a step of reasoning ends: at a delimiter in its text, told token by token."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tokenrouter.schedulers.arguments import text

BLANK_LINE = "\n\n"


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

    def completed(
        self,
        decode: Callable[[Sequence[int]], str],
        tokens: Sequence[int],
        start: int,
        token: int,
    ) -> bool:
        """Whether ``token`` after ``tokens`` completes it.

        Only what lies at positions from ``start`` on counts, and only its last few tokens are
        decoded: the delimiter must not be among ``tokens[start:]`` yet.
        """
        first = max(start, len(tokens) + 1 - self._window)
        return self._text in decode([*tokens[first:], token])
