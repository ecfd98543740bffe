"""What a loop measures for the throughput model, as sums that the planner reads now and then.

The time of a step is that from its launch to the moment when the next could be launched: the
loop does not wait after a step, so that this is when it next comes to `launch`. It holds all
that a step costs: the engine's work, the algorithm's, and the loop's own. Times are the
loop's clock, in seconds. Cost: two or three microseconds a step and 0.3 a request.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from tokenrouter.ipc.member_state import Measurements, StepSums
from tokenrouter.subserver.engine import Visit, Work
from tokenrouter.subserver.longest import LongestStep

LONGEST_RUN = 4096
"""Longer runs count as so long, which bounds the answer."""


class Sums:
    """`StepSums` that can still grow."""

    __slots__ = ("_count", "_seconds", "_squared", "_tokens", "_tokens_seconds", "_tokens_squared")

    def __init__(self) -> None:
        self._count = self._tokens = self._tokens_squared = 0
        self._seconds = self._squared = self._tokens_seconds = 0.0

    def add(self, seconds: float, tokens: int) -> None:
        """One more step: it took ``seconds`` and fed ``tokens``."""
        self._count += 1
        self._seconds += seconds
        self._squared += seconds * seconds
        self._tokens += tokens
        self._tokens_squared += tokens * tokens
        self._tokens_seconds += tokens * seconds

    def snapshot(self) -> StepSums:
        """The sums so far."""
        return StepSums(
            self._count,
            self._seconds,
            self._squared,
            self._tokens,
            self._tokens_squared,
            self._tokens_seconds,
        )


class Meter:
    """Steps, decisions and live requests of member ``me`` since it started, at ``now``.

    Args:
        members: how many there are.
        profile: steps that were measured before it served, by batch size.
    """

    def __init__(self, me: int, members: int, now: float, profile: Mapping[int, StepSums]) -> None:
        self.live = 0
        """Live requests (A of the clamp rule) since `launching` was last called."""
        self._profile = dict(profile)
        first = profile[min(profile)] if profile else None
        self._longest = LongestStep(first.seconds / first.count if first and first.count else 0.0)
        self._steps: dict[int, Sums] = {}
        self._prefill = Sums()
        self._me = me
        self._hops = [0] * members
        self._kept = [0] * members
        self._runs: Counter[int] = Counter()
        self._live_seconds = 0.0
        self._looked = now
        self._open: tuple[Sums, int, float, int] | None = None

    def launching(self, now: float) -> None:
        """A step could begin: the last one is over."""
        self._live_seconds += self.live * (now - self._looked)
        self._looked = now
        if self._open is not None:
            sums, size, began, tokens = self._open
            sums.add(now - began, tokens)
            if sums is not self._prefill:
                self._longest.add(size, now - began)
            self._open = None

    def launched(self, work: Sequence[Work]) -> None:
        """A step for ``work`` has begun, when `launching` was last called."""
        tokens, size, prefill = 0, len(work), False
        for visit, n in work:
            tokens += n
            # The last token of a prompt that was cached costs what one of the output does.
            if visit.computed < visit.prompt_length - 1:
                prefill = True
        if prefill:
            sums = self._prefill
        elif size in self._steps:
            sums = self._steps[size]
        else:
            sums = self._steps[size] = Sums()
        self._open = sums, size, self._looked, tokens

    @property
    def longest_step(self) -> float:
        """Seconds of the longest step, of those that feed no prompt; 0: not known."""
        return self._longest.seconds

    def interrupted(self) -> None:
        """The loop was kept from its next step: the time of the last one is not known."""
        self._open = None

    def decided(self, visit: Visit, kept: int, to: int) -> None:
        """A step of ``visit`` made ``kept`` tokens final, and member ``to`` goes on."""
        if visit.counted:
            self._hops[to] += 1
            self._kept[to] += kept
            run = visit.run + 1
            if to == self._me:
                visit.run = run
            else:
                visit.run = 0
                self._runs[run if run < LONGEST_RUN else LONGEST_RUN] += 1

    def snapshot(self, now: float) -> Measurements:
        """The sums at ``now``."""
        return Measurements(
            at=now,
            steps={size: sums.snapshot() for size, sums in self._steps.items()},
            prefill=self._prefill.snapshot(),
            profile=self._profile,
            hops={to: (count, self._kept[to]) for to, count in enumerate(self._hops) if count},
            runs=dict(self._runs),
            live_seconds=self._live_seconds + self.live * (now - self._looked),
        )
