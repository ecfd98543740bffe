"""What a member's process makes of the configuration."""

from __future__ import annotations

import pytest

from tokenrouter.config import Config
from tokenrouter.subserver.process import rules_of


@pytest.mark.parametrize(
    ("wanted", "first"), [((4, "auto"), (4, 1)), (("auto", "auto"), (1, 1)), ((4, 2), (4, 2))]
)
def test_thresholds_of_the_user_hold_from_the_start(
    wanted: tuple[int | str, ...], first: tuple[int, ...]
) -> None:
    models = [
        {"name": f"m{m}", "engine": "timed", "step_ms": 1, "threshold": threshold}
        for m, threshold in enumerate(wanted)
    ]
    config = Config.model_validate({"models": models, "max_wait_ms": float("inf")})
    rules = rules_of(config, 0)
    assert rules.thresholds == first
    assert rules.max_wait == float("inf")
