"""What an algorithm may set when its request arrives."""

from __future__ import annotations

from array import array
from types import SimpleNamespace
from typing import Any

import pytest

from tests.subserver.algorithms import EXACT, ONE
from tests.subserver.builders import make_visit
from tokenrouter.schedulers.base import Proposal, Request
from tokenrouter.subserver.arrivals import problem_of_arrival

VOCABULARY = 320


def problem(drafts: int = 0, rule: bool = True, **given: Any) -> str | None:
    visit = make_visit(1)
    visit.scheduler = SimpleNamespace(scratch_tokens=3)
    visit.request = Request(visit.tokens, visit.prompt_length, 0, drafts=drafts, **given)
    visit.check = EXACT if rule else None
    return problem_of_arrival(visit, VOCABULARY)


@pytest.mark.parametrize("scratch", [(), (0, 319), [5, 6, 7], range(3)])
def test_scratch_tokens(scratch: Any) -> None:
    assert problem(scratch=scratch) is None


@pytest.mark.parametrize(
    ("scratch", "told"),
    [
        ((1, 2, 3, 4), "4 scratch tokens, and its algorithm has room for 3"),
        ((1, -1), "ids from 0 to 319"),
        ((320,), "ids from 0 to 319"),
        ((1.0,), "ids from 0 to 319"),
        ((1 << 70,), "ids from 0 to 319"),
        ("one", "ids from 0 to 319"),
    ],
)
def test_scratch_tokens_that_no_engine_can_read(scratch: Any, told: str) -> None:
    problem_found = problem(scratch=scratch)
    assert problem_found is not None and told in problem_found


def test_proposals() -> None:
    columns = array("I", [3, 400]), array("f", [0.5, 0.5]), array("f", [0.1, 0.2])
    assert problem(2, proposals=[ONE, Proposal(*columns, 0.2)]) is None
    assert problem(2, rule=False, proposals=[None]) is None, "nobody looks at them"


@pytest.mark.parametrize(
    "wrong",
    [
        Proposal((), (), (), 0.5),
        Proposal((3, 4), (1.0,), (0.5,), 0.5),
        Proposal((3,), (1.0,), (0.5, 0.1), 0.5),
        Proposal((3.0,), (1.0,), (0.5,), 0.5),
        Proposal((-1,), (1.0,), (0.5,), 0.5),
        Proposal((1 << 32,), (1.0,), (0.5,), 0.5),
        Proposal((3, 4), (2.0, -1.0), (0.5, 0.1), 0.5),
        Proposal((3,), (float("nan"),), (0.5,), 0.5),
        Proposal((3,), (float("inf"),), (0.5,), 0.5),
        Proposal((3,), (1.0,), (float("nan"),), 0.5),
        Proposal((3,), (1.0,), (0.5,), float("nan")),
    ],
)
def test_proposals_that_are_no_laws(wrong: Proposal) -> None:
    found = problem(2, proposals=[ONE, wrong])
    assert found == "proposals that are no laws of tokens"


def test_one_proposal_for_each_draft() -> None:
    assert problem(2, proposals=[ONE]) == "1 proposals for 2 drafts"
