"""No routing."""

from __future__ import annotations

import pytest

from tokenrouter.errors import ConfigError
from tokenrouter.schedulers.base import Decision, Request, Step
from tokenrouter.schedulers.single import Single


@pytest.mark.parametrize("member", [0, 1, 2])
def test_everything_is_kept_and_nobody_else_is_asked(member: int):
    scheduler = Single(["a", "b", "c"])
    seen = Request([1], 1, member)
    assert scheduler.route(seen, Step((5,), {})) == Decision(1, member)
    assert scheduler.route(seen, Step((5, 6, 7), {})) == Decision(3, member)
    assert list(scheduler.signals(member)) == []


def test_it_takes_no_threshold():
    with pytest.raises(ConfigError, match="routes nothing"):
        Single(["a"], 0.5)
