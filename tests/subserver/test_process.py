"""What a member's process makes of the configuration."""

from __future__ import annotations

import pytest

from tokenrouter.config import Config
from tokenrouter.subserver.process import rules_of


@pytest.mark.parametrize(
    ("wanted", "again", "first"),
    [
        ((4, "auto"), False, (4, 1)),
        ((4, "auto"), True, (1, 1)),
        ((4, 2), True, (4, 2)),
    ],
)
def test_a_member_that_is_started_again_beside_a_plan_waits_for_nobody(
    wanted: tuple[int | str, ...], again: bool, first: tuple[int, ...]
) -> None:
    models = [
        {"name": f"m{m}", "engine": "timed", "step_ms": 1, "threshold": threshold}
        for m, threshold in enumerate(wanted)
    ]
    config = Config.model_validate({"models": models, "max_wait_ms": float("inf")})
    rules = rules_of(config, 0, again)
    assert rules.thresholds == first
    assert rules.max_wait == float("inf")
