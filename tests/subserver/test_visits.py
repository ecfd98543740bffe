"""The table of visits and the events that change it."""

from __future__ import annotations

import pytest

from tests.subserver.algorithms import HERE
from tests.subserver.builders import GREEDY, FakeEngine, route
from tests.subserver.harness import Characters
from tokenrouter.errors import RoutingError
from tokenrouter.ipc.messages import Close, HandOver, Open, Route
from tokenrouter.schedulers.base import Check
from tokenrouter.schedulers.signals import Checks
from tokenrouter.subserver.engine import Checked, Visit
from tokenrouter.subserver.routing import Router
from tokenrouter.subserver.visits import Stepped, Visits

HOME = 1
PROMPT = [11, 12, 13, 14]
EOS_IDS = [(199,), (198, 197), (196,)]


def opened(
    to: Route | None = None, eager: bool = False, members: int = 2
) -> tuple[Visits, FakeEngine, Visit]:
    """A table with request 7 open, resident, and its prompt in KV."""
    engine = FakeEngine()
    names = [f"m{i}" for i in range(members)]
    visits = Visits(engine, Router(names, 0, Characters()), EOS_IDS[:members])
    visits.apply(HOME, Open(7, PROMPT, GREEDY, to or route(), eager), 1.0)
    visit = visits.get(7)
    assert visit is not None
    assert engine.admit(visit)
    visit.resident = True
    visit.computed = 4
    engine.free -= 4
    engine.calls.clear()
    return visits, engine, visit


def arrive(visits: Visits, start: int, tokens: list[int], epoch: int = 3, payload: bytes = b""):
    visits.apply(HOME, HandOver(7, epoch, start, tokens, 0, payload), 9.0)


def test_an_open_visit_knows_its_prompt_and_has_no_control():
    visits, _, visit = opened(eager=True)
    assert (visit.uid, visit.home, visit.tokens, visit.prompt_length) == (7, HOME, PROMPT, 4)
    assert (visit.control, visit.eager, visit.counted) == (False, True, True)
    assert (len(visits), list(visits)) == (1, [visit])


def test_only_what_opens_a_visit_returns_it():
    visits, _, _ = opened()
    for event in (Stepped(7, [41], True), HandOver(7, 3, 5, [], 0, b""), Close(7), Close(7)):
        assert visits.apply(HOME, event, 2.0) is None
    assert visits.apply(HOME, Open(7, PROMPT, GREEDY, route(), False), 3.0) is visits.get(7)


def test_a_visit_counts_if_its_request_may_visit_everyone():
    assert opened(members=2)[2].counted
    assert not opened(members=3)[2].counted
    assert opened(route(2, 0, 1), members=3)[2].counted


def test_control_arrives_with_the_tokens_that_are_missing():
    visits, engine, visit = opened()
    arrive(visits, 4, [21, 22])
    assert visit.tokens == [*PROMPT, 21, 22]
    assert (visit.control, visit.epoch, visit.ready_since) == (True, 3, 9.0)
    assert (visit.computed, visit.pending) == (4, 2)
    assert engine.calls == []


def test_the_last_token_is_fed_again_when_nothing_is_missing():
    visits, engine, visit = opened()
    arrive(visits, 4, [])
    assert engine.calls == [("truncate", 7, 3)]
    assert (visit.computed, visit.pending, visit.length) == (3, 1, 4)


def test_the_home_may_take_tokens_back():
    visits, engine, visit = opened()
    arrive(visits, 4, [21, 22, 23])
    visit.computed = 7
    engine.free -= 3
    arrive(visits, 5, [31], epoch=4)
    assert visit.tokens == [*PROMPT, 21, 31]
    assert engine.calls == [("truncate", 7, 5)]
    assert (visit.computed, visit.pending, visit.epoch) == (5, 1, 4)


def test_tokens_taken_back_without_any_instead_leave_one_to_feed():
    visits, engine, visit = opened()
    arrive(visits, 4, [21, 22, 23])
    visit.computed = 7
    arrive(visits, 5, [], epoch=4)
    assert visit.tokens == [*PROMPT, 21]
    assert engine.calls == [("truncate", 7, 5), ("truncate", 7, 4)]
    assert visit.pending == 1


def test_kv_that_ends_before_the_cut_is_not_cut():
    visits, engine, visit = opened()
    arrive(visits, 4, [21, 22, 23])
    arrive(visits, 6, [31], epoch=4)
    assert (visit.tokens, visit.computed) == ([*PROMPT, 21, 22, 31], 4)
    assert engine.calls == []


def test_a_gap_is_an_error_of_the_request_and_changes_nothing():
    visits, _, visit = opened()
    with pytest.raises(RoutingError, match=r"request 7: tokens 4\.\.5 never arrived"):
        arrive(visits, 6, [21])
    assert (visit.tokens, visit.control) == (PROMPT, False)


def test_a_step_adds_its_tokens_and_says_who_goes_on():
    visits, _, visit = opened()
    visits.apply(HOME, Stepped(7, [41], True), 5.0)
    assert (visit.tokens[4:], visit.control, visit.ready_since) == ([41], True, 5.0)
    visits.apply(HOME, Stepped(7, [], False), 6.0)
    assert (visit.tokens[4:], visit.control) == ([41], False)


def test_the_algorithm_hears_of_an_arrival_after_the_tokens():
    visits, _, visit = opened(route(algorithm=f"{HERE}:Bounce"))
    arrive(visits, 4, [21], payload=b"\x02")
    assert visit.request.state == 2
    assert visit.request.position == 1


def test_close_frees_what_the_visit_holds():
    visits, engine, _ = opened()
    visits.apply(HOME, Close(7), 5.0)
    assert engine.calls == [("abandon", 7), ("release", 7)]
    assert (engine.free, engine.slots) == (engine.pool_tokens, engine.max_visits)
    assert (len(visits), visits.get(7), visits.departures) == (0, None, 1)


def test_close_of_a_visit_that_holds_nothing():
    visits, engine, visit = opened()
    visit.resident = False
    visits.apply(HOME, Close(7), 5.0)
    assert engine.calls == [("abandon", 7)]
    assert visits.departures == 1


def test_events_for_visits_that_are_gone_are_counted():
    visits, _, _ = opened()
    visits.apply(HOME, Close(7), 5.0)
    for event in (Close(7), Stepped(7, [1], True), HandOver(7, 3, 4, [], 0)):
        visits.apply(HOME, event, 6.0)
    assert visits.stale == 3
    assert len(visits) == 0


def test_a_visit_whose_algorithm_cannot_be_made_is_not_there():
    visits = Visits(FakeEngine(), Router(["a", "b"], 0, Characters()), EOS_IDS[:2])
    with pytest.raises(RoutingError):
        visits.apply(HOME, Open(7, PROMPT, GREEDY, route(algorithm="nosuch"), False), 1.0)
    arrive(visits, 4, [])
    visits.apply(HOME, Close(7), 2.0)
    assert len(visits) == 0
    assert visits.stale == 2


def drafts_arrive(cached: int = 4) -> tuple[Visits, FakeEngine, Visit]:
    """Two drafts to check, after the prompt, and two scratch tokens."""
    visits, engine, visit = opened()
    visit.check = Checks()
    visits.apply(HOME, HandOver(7, 3, 4, [21, 22], 0, b"", drafts=2), 9.0)
    visit.tokens += [50, 51]
    visit.scratch, visit.computed = 2, cached
    engine.calls.clear()
    return visits, engine, visit


def found(visit: Visit, count: int) -> list[Check]:
    """What a step found of drafts, as the loop keeps it."""
    checks = [Check(30 + i, 0.5, False) for i in range(count)]
    visit.checked += map(Checked, checks)
    return checks


def test_checks_of_a_step_that_read_scratch_tokens_stay():
    visits, engine, visit = drafts_arrive(cached=8)
    checks = found(visit, 2)
    step = visits.finish_step(visit, 60, {})
    assert (step.checks, step.scratch) == (checks, True)
    assert len(visit.checked) == 2, "their log probabilities are asked for after the decision"
    assert (visit.tokens, visit.scratch) == ([*PROMPT, 21, 22], 0)
    assert engine.calls == [("truncate", 7, 6)]
    visits.apply(HOME, Stepped(7, (), True, 0, 2), 10.0)
    assert (visit.checked, visit.unchecked, visit.pending) == ([], 0, 1)


def test_drafts_whose_contexts_are_forgotten_are_checked_again():
    visits, engine, visit = drafts_arrive(cached=5)
    found(visit, 2)
    assert visit.to_check(3) == range(0)
    visits.feed_again(visit)
    assert engine.calls == [("truncate", 7, 3)]
    assert (visit.checked, visit.to_check(5)) == ([], range(4, 6))


def test_more_scratch_tokens_than_there_is_room_for_are_refused():
    visits, _, visit = opened()
    visit.request.scratch = [50, 51]
    with pytest.raises(RoutingError, match="2 scratch tokens, and its algorithm has room for 0"):
        arrive(visits, 4, [])
