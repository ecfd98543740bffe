"""M models, smallest first: defer upward while the top probability is too low."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from tokenrouter.errors import ConfigError
from tokenrouter.schedulers.base import Decision, Request, RoutingScheduler, Step
from tokenrouter.schedulers.signals import Declared, TopProbability


class Cascade(RoutingScheduler):
    """Each token starts at member 0 and rises until a model is sure of it.

    Member m defers to m + 1 while its top-1 probability is below ``thresholds[m]``; the
    last one always writes. ``router_threshold`` is one value for every level (default
    0.9); ``thresholds`` gives one per level instead.
    """

    threshold_range = (0.0, 1.0)

    def __init__(
        self,
        members: Sequence[str],
        router_threshold: float | None = None,
        thresholds: Sequence[float] | None = None,
    ) -> None:
        super().__init__(members, router_threshold)
        levels = len(members) - 1
        if thresholds is not None and router_threshold is not None:
            raise ConfigError(
                "router_threshold: cascade has algorithm_args.thresholds, one for each level; "
                "leave one of the two out"
            )
        if thresholds is None:
            thresholds = [0.9 if router_threshold is None else router_threshold] * levels
        if not _one_for_each(levels, thresholds):
            raise ConfigError(
                f"algorithm_args.thresholds: cascade over {len(members)} models needs a list of "
                f"{levels}, from 0 to 1 (every model but the last), got {thresholds!r}"
            )
        self.thresholds = tuple(thresholds)

    def signals(self, member: int) -> Collection[Declared]:
        """The top probability, on every member that may defer."""
        return (TopProbability(),) if member < len(self.thresholds) else ()

    def route(self, request: Request, step: Step) -> Decision:
        """Defer upward, or commit and start the next token at the bottom."""
        level = request.member
        if level < len(self.thresholds):
            sure = step.signals["top_probability"] >= self.thresholds[level]
            if not sure:
                return Decision(0, level + 1)
        return Decision(1, 0)


def _one_for_each(levels: int, thresholds: object) -> bool:
    if not isinstance(thresholds, list | tuple) or len(thresholds) != levels:
        return False
    return all(type(each) in (int, float) and 0.0 <= each <= 1.0 for each in thresholds)
