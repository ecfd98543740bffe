"""Whether the large model, once asked, stays: what R2R's rolling strategies have in common."""

from __future__ import annotations

from collections import deque


class Rolling:
    """Who writes the next position of one request; kept on the small member.

    After a small token the large model is asked where the value reaches tau. After a large one
    it stays while the mean of a window of values does. A request begins as after a
    large token, with an empty window. What is not a number asks.

    Args:
        size: of the window; it holds values since the large model was last asked.
        with_trigger: whether the value for which it was asked is the window's first.
    """

    def __init__(self, size: int, with_trigger: bool) -> None:
        self._with_trigger = with_trigger
        self._values: deque[float] = deque(maxlen=size)
        self._after_large = True

    def asks(self, value: float, tau: float, certain: bool = False) -> bool:
        """Whether the large model writes the position where the small one has ``value``.

        ``certain``: whatever the value, after a small token it is not asked.
        """
        if self._after_large:
            self._values.append(value)
            # fsum and fmean raise where infinities meet; this gives NaN, which asks.
            self._after_large = not sum(self._values) / len(self._values) < tau
        elif not (certain or value < tau):
            self._values.clear()
            if self._with_trigger:
                self._values.append(value)
            self._after_large = True
        return self._after_large
