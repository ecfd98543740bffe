"""What does not change of a deployment while it is measured."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Facts:
    """Of one deployment.

    Attributes:
        name: of routed requests.
        members: names of the models, in order; ``limits``: most requests in a step of each.
        router_threshold: in force; None: the algorithm's default.
        threshold_range: legal router thresholds.
    """

    name: str
    algorithm: str
    members: tuple[str, ...]
    limits: tuple[int, ...]
    router_threshold: float | None
    threshold_range: tuple[float, float]


def read(info: Any) -> Facts:
    """The facts in what ``/get_server_info`` tells.

    Raises:
        KeyError, TypeError: it is not TokenRouter's.
    """
    models: Sequence[dict[str, Any]] = info["models"]
    low, high = info["router_threshold_range"]
    threshold = info["router_threshold"]
    return Facts(
        name=info["served_name"],
        algorithm=info["algorithm"],
        members=tuple(model["name"] for model in models),
        limits=tuple(int(model["max_batch"]) for model in models),
        router_threshold=None if threshold is None else float(threshold),
        threshold_range=(-math.inf if low is None else low, math.inf if high is None else high),
    )
