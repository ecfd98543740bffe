"""What the deployments of `served` compare would be different if something were wrong."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.schedulers import test_bild, test_spec_reason
from tests.schedulers.served import Served, assert_exact
from tests.subserver.engines import MUTANTS
from tests.subserver.harness import Stall
from tokenrouter.subserver.timed import TimedEngine
from tokenrouter.subserver.visits import Visits

DRAFTING = [test_bild.SERVED, test_spec_reason.SERVED]
ERRORS = (AssertionError, Stall, IndexError, KeyError)


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
