"""Route where the small model's uncertainty is high: R2R's ``immediate`` strategy."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from tokenrouter.errors import ConfigError
from tokenrouter.schedulers.arguments import choice, number
from tokenrouter.schedulers.base import Decision, Request, RoutingScheduler, Step
from tokenrouter.schedulers.signals import Aleatoric, Declared, Entropy, Epistemic, Signal

SMALL, LARGE = 0, 1
METRICS: dict[str, Signal] = {"au": Aleatoric(), "eu": Epistemic(), "h": Entropy()}
DEFAULTS = {"au": 2.275}


class Immediate(RoutingScheduler):
    """The large model writes a position where every configured metric reaches its threshold.

    Metrics, of the small model: ``au`` (aleatoric uncertainty), ``eu`` (epistemic), ``h``
    (entropy, in nats). The small model's token there is dropped.

    Args:
        router_threshold: of ``metric`` (default 2.275 for ``au``; the others have none).
        metric: the only one, unless ``thresholds`` is given.
        thresholds: of several metrics, by name.
    """

    members_needed = 2

    def __init__(
        self,
        members: Sequence[str],
        router_threshold: float | None = None,
        metric: str = "au",
        thresholds: Mapping[str, float] | None = None,
    ) -> None:
        super().__init__(members, router_threshold)
        choice("metric", metric, METRICS)
        if thresholds is None:
            thresholds = {metric: _only(metric, router_threshold)}
        elif router_threshold is not None:
            raise ConfigError(
                "router_threshold: immediate has algorithm_args.thresholds, one for each "
                "metric; leave one of the two out"
            )
        if not (isinstance(thresholds, dict) and thresholds):
            raise ConfigError(
                f"algorithm_args.thresholds: must give one or more of {', '.join(METRICS)} a "
                f"threshold, got {thresholds!r}"
            )
        self.thresholds = [
            (METRICS[choice("thresholds", name, METRICS)], number(f"thresholds.{name}", value))
            for name, value in thresholds.items()
        ]

    def signals(self, member: int) -> Collection[Declared]:
        """The configured metrics of the small model's steps."""
        return tuple(metric for metric, _ in self.thresholds) if member == SMALL else ()

    def route(self, request: Request, step: Step) -> Decision:
        """Ask the large model for one token unless some metric is below its threshold."""
        if request.member == LARGE:
            return Decision(1, SMALL)
        sure = any(step.signals[metric.name] < low for metric, low in self.thresholds)
        return Decision(1, SMALL) if sure else Decision(0, LARGE)


def _only(metric: str, router_threshold: float | None) -> float:
    if router_threshold is not None:
        return router_threshold
    if metric not in DEFAULTS:
        raise ConfigError(
            f"router_threshold: immediate has no default for the metric {metric!r}; give one"
        )
    return DEFAULTS[metric]
