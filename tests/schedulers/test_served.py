"""Whole deployments serve what the plain loop writes, and leave nothing; a fault would be seen."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.schedulers import (
    test_bild,
    test_duo_rolling,
    test_glimp_router,
    test_immediate,
    test_momentum,
    test_r_stitch,
    test_rolling,
    test_spec_reason,
)
from tests.schedulers.served import (
    Moment,
    Served,
    assert_clean_after_aborts,
    assert_clean_after_deaths,
    assert_exact,
    evictions_at,
)
from tests.subserver.engines import MUTANTS
from tests.subserver.harness import Stall
from tokenrouter.subserver.timed import TimedEngine
from tokenrouter.subserver.visits import Visits

MODULES = (
    test_bild,
    test_duo_rolling,
    test_glimp_router,
    test_immediate,
    test_momentum,
    test_r_stitch,
    test_rolling,
    test_spec_reason,
)
SERVED = [pytest.param(module.SERVED, id=module.SERVED.algorithm) for module in MODULES]
MOMENTS = [
    pytest.param(module.SERVED, moment, id=f"{module.SERVED.algorithm}-{moment.__name__}")
    for module in MODULES
    for moment in module.SERVED.moments
]
DRAFTING = [test_bild.SERVED, test_spec_reason.SERVED]
ERRORS = (AssertionError, Stall, IndexError, KeyError)


@pytest.mark.parametrize("scarce", [False, True])
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("served", SERVED)
def test_what_is_served_equals_the_plain_loop(served: Served, seed: int, scarce: bool):
    assert_exact(served, seed, scarce)


@pytest.mark.parametrize(("served", "moment"), MOMENTS)
def test_nothing_is_left_of_what_ends_in_the_middle(served: Served, moment: Moment):
    assert_clean_after_aborts(served, moment)
    assert_clean_after_deaths(served, moment)


@pytest.mark.parametrize(("served", "moment"), MOMENTS)
def test_nor_of_what_is_evicted(served: Served, moment: Moment, monkeypatch: pytest.MonkeyPatch):
    assert evictions_at(served, moment, monkeypatch) > 0


@pytest.mark.parametrize("served", DRAFTING)
@pytest.mark.parametrize("engine", MUTANTS)
def test_a_wrong_engine_is_seen(engine: type[TimedEngine], served: Served):
    assert_exact(replace(served, engine=TimedEngine), 0, scarce=True)
    with pytest.raises(ERRORS):
        assert_exact(replace(served, engine=engine), 0, scarce=True)


@pytest.mark.parametrize("served", DRAFTING)
def test_drafts_that_stay_are_seen(served: Served, monkeypatch: pytest.MonkeyPatch):
    """A member that never takes anything back."""
    monkeypatch.setattr(Visits, "_cut", lambda self, visit, length: None)
    with pytest.raises(ERRORS):
        assert_exact(served, 0, scarce=False)
