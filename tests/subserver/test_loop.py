"""One member's loop: what it does in which order, how long it sleeps, what it counts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import pytest

from tests.subserver.algorithms import HERE
from tests.subserver.builders import FakeEngine, make_roster, make_submit, make_visit, route
from tests.subserver.harness import Characters
from tokenrouter.configuration.waits import UNKNOWN_WAIT_S
from tokenrouter.errors import ChannelError, ModelError, RequestError
from tokenrouter.ipc.member_state import Buckets, MemberState
from tokenrouter.ipc.messages import (
    FRONT_END,
    PLANNER,
    SUPERVISOR,
    Abort,
    Admitted,
    Blocked,
    Close,
    Commit,
    Failed,
    Grammar,
    HandOver,
    Live,
    Logprob,
    Message,
    Open,
    Output,
    Route,
    Sampling,
)
from tokenrouter.ipc.operations import Control, Inspect, Plan
from tokenrouter.ipc.supervision import Down
from tokenrouter.schedulers.signals import Entropy, TopProbability
from tokenrouter.subserver.batching import Limits, Rules
from tokenrouter.subserver.longest import WARM_UP
from tokenrouter.subserver.loop import Subserver

PROMPT = [101, 102, 103]
USUAL = Limits(16, 64)


def everyone(**options: object) -> Route:
    return route(0, 1, 2, **options)


class Done(Exception):
    """The scripted arrivals are over."""


@dataclass
class Script:
    """Links that deliver what was fed to them and write down every call."""

    arrivals: list[tuple[int, Message]] = field(default_factory=list)
    log: list[tuple[object, ...]] = field(default_factory=list)
    pending: list[tuple[object, ...]] = field(default_factory=list)

    def poll(self, timeout: float | None) -> Iterable[tuple[int, Message]]:
        self.log.append(("poll", timeout))
        arrivals, self.arrivals = self.arrivals, []
        yield from arrivals

    def post(self, member: int, message: Message) -> None:
        self.pending.append((member, message))

    def flush(self) -> None:
        self.log += [("to", *each) for each in self.pending]
        self.pending = []

    def busy(self, seconds: float) -> None:
        """Nobody watches."""

    def wake(self) -> None:
        raise AssertionError("nobody else lives in this test")

    def emit(self, outputs: Sequence[Output | MemberState]) -> None:
        self.log.append(("emit", *outputs))

    def dropped(self) -> dict[str, int]:
        return {"stale": 2}

    def delays(self) -> dict[str, Buckets]:
        return {}


class Member:
    """Member ``me`` of three, its links, its engine and its clock."""

    def __init__(
        self,
        thresholds: Sequence[int] = (1, 1, 1),
        *,
        me: int = 0,
        max_wait: float | None = None,
        limits: Limits = USUAL,
        engine: FakeEngine | None = None,
        eager: bool = False,
    ) -> None:
        self.now = 100.0
        self.links = Script()
        self.engine = engine or FakeEngine()
        roster = make_roster(3, eos_ids=[(199,)] * 3)
        self.loop = Subserver(
            me, ("a", "b", "c"), roster, self.engine, self.links,
            Rules(tuple(thresholds), limits, max_wait), Characters(), eager, lambda: self.now,
        )  # fmt: skip

    def turn(self, *arrivals: tuple[int, Message]) -> list[tuple[object, ...]]:
        """One iteration; returns what the links were asked, the poll left out."""
        self.links.arrivals += arrivals
        start = len(self.links.log)
        self.loop.receive()
        if work := self.loop.launch():
            self.loop.complete(work, self.loop.step(work))
        assert not self.links.pending, "messages were not flushed"
        return [entry for entry in self.links.log[start:] if entry[0] != "poll"]

    @property
    def timeout(self) -> float | None:
        """What the last poll was ready to wait."""
        return next(entry[1] for entry in reversed(self.links.log) if entry[0] == "poll")

    def arrive(self, uid: int = 1, **options: object) -> list[tuple[int, Message]]:
        """Open and HandOver of a visit whose home is member 2."""
        to = route(2, 0, home=2, **options)
        return [
            (2, Open(uid, PROMPT, Sampling(8), to, False)),
            (2, HandOver(uid, 4, 3, [110], 0)),
        ]


def test_a_request_of_this_home_runs_and_is_streamed():
    member = Member()
    to = route(0)
    told = member.turn((FRONT_END, make_submit(1, to=to)))
    assert told == []
    assert member.engine.calls == [("admit", 1), ("step", [(1, 3)], ())]
    ((kind, output),) = member.turn()
    assert (kind, output.tokens) == ("emit", [100]), "while the next step runs"


def test_peers_hear_before_the_detokenizer():
    member = Member()
    told = member.turn((FRONT_END, make_submit(1, to=route(0, 1, algorithm=f"{HERE}:Bursts"))))
    names = [(entry[1], type(entry[2]).__name__) for entry in told]
    assert names == [(1, "Open"), (1, "HandOver"), (1, "Live")]
    assert member.turn() == [], "nothing to do: what is left is told before waiting"
    assert [entry[0] for entry in member.turn()] == ["emit"]


def test_a_visitor_commits_to_its_home():
    member = Member()
    told = member.turn(*member.arrive())
    assert told == [("to", 2, Commit(1, 4, 4, [100]))]
    assert member.turn() == [("to", 2, Commit(1, 4, 5, [100]))]


def test_a_visitor_stops_at_the_length_limit_and_waits_to_be_closed():
    """However late its home learns that it is full."""
    member = Member()
    path, sampling = route(2, 0, home=2), Sampling(3)
    told = member.turn(
        (2, Open(1, PROMPT, sampling, path, False)), (2, HandOver(1, 4, 3, [110], 0))
    )
    assert told == [("to", 2, Commit(1, 4, 4, [100]))]
    assert member.turn() == [("to", 2, Commit(1, 4, 5, [100]))]
    assert member.turn() == []
    member.turn()
    assert member.timeout is None
    member.turn((2, Close(1)))
    assert len(member.loop.visits) == 0


def test_a_visitor_that_goes_on_elsewhere_tells_its_home_only():
    member = Member(me=1)
    told = member.turn(
        (2, Open(1, PROMPT, Sampling(8), everyone(home=2, algorithm="cascade"), False)),
        (2, HandOver(1, 4, 3, [110], 1)),
    )
    # The fake engine's top probability is 0.5, which is not sure enough.
    assert told == [("to", 2, HandOver(1, 4, 4, [], 2))]


def test_a_broken_visitor_tells_its_home_and_does_nothing_more():
    member = Member()
    (told,) = member.turn(*member.arrive(algorithm="random"))
    assert told[1] == 2 and isinstance(told[2], Failed)
    assert told[2].status == 500
    assert "3 are configured" in told[2].message
    assert member.turn() == []
    assert member.turn((2, Close(1))) == []
    assert len(member.loop.visits) == 0


def test_signals_are_computed_once_for_those_who_declared_them():
    member = Member()
    member.turn(
        *member.arrive(1),
        *member.arrive(2, algorithm="cascade", router_threshold=0.1),
        *member.arrive(3, algorithm="cascade", router_threshold=0.2),
    )
    (step,) = [call for call in member.engine.calls if call[0] == "step"]
    assert step[2] == (TopProbability(),)
    assert Entropy() not in step[2]


def test_logprobs_travel_with_the_tokens_that_are_kept():
    member = Member(me=1)
    engine = member.engine
    engine.logprobs = {0: Logprob(-0.5, [])}
    to = route(2, 1, home=2)
    opening = (2, Open(1, PROMPT, Sampling(8, logprobs=0), to, False))
    (told,) = member.turn(opening, (2, HandOver(1, 4, 3, [110], 1)))
    assert told[2] == Commit(1, 4, 4, [100], [Logprob(-0.5, [])])
    to = everyone(home=2, algorithm="cascade")
    opening = (2, Open(2, PROMPT, Sampling(8, logprobs=0), to, False))
    member.turn((2, Close(1)))
    (told,) = member.turn(opening, (2, HandOver(2, 4, 3, [110], 1)))
    assert told[2] == HandOver(2, 4, 4, [], 2, b"", [])


def test_a_row_without_a_token_fails_its_own_request_only():
    member = Member()
    member.engine.failed = {1: RequestError("nothing may follow", "regex")}
    told = member.turn(*member.arrive(1), *member.arrive(2))
    assert told == [
        ("to", 2, Commit(1, 4, 4, [100])),
        ("to", 2, Failed(2, "nothing may follow", 400, "regex")),
    ]


def test_what_a_broken_model_computed_fails_its_request_and_is_left_to_nobody(
    caplog: pytest.LogCaptureFixture,
):
    member = Member()
    member.engine.failed = {1: ModelError("no numbers")}
    told = member.turn(*member.arrive(1), *member.arrive(2))
    assert told == [
        ("to", 2, Commit(1, 4, 4, [100])),
        ("to", 2, Failed(2, "no numbers", 500)),
    ]
    assert [uid for uid, _ in member.engine.shared] == [1]
    assert ("truncate", 2, 0) in member.engine.calls
    assert caplog.messages == ["request 2: no numbers"]
    member.engine.failed = {}
    member.turn((2, Close(1)), (2, Close(2)))
    assert member.engine.free == member.engine.pool_tokens


def test_a_broken_prompt_that_was_computed_early_is_computed_again():
    member = Member(eager=True)
    member.engine.failed = {0: ModelError("no numbers")}
    assert member.turn((2, Open(1, PROMPT, Sampling(8), route(2, 0, home=2), True))) == []
    assert member.engine.shared == []
    assert member.engine.free == member.engine.pool_tokens
    member.engine.failed = {}
    told = member.turn((2, HandOver(1, 4, 3, [110], 0)))
    assert told == [("to", 2, Commit(1, 4, 4, [100]))]


def test_it_sleeps_without_limit_when_nobody_waits():
    member = Member()
    member.turn()
    assert member.timeout == 0.0, "the first look does not wait"
    member.turn()
    assert member.timeout is None


def test_it_does_not_sleep_between_steps():
    member = Member()
    member.turn(*member.arrive())
    member.turn()
    assert member.timeout == 0.0


def counted(uid: int) -> tuple[int, Message]:
    return FRONT_END, make_submit(uid, to=everyone())


def test_a_visit_below_the_threshold_waits_and_is_launched_when_overdue():
    member = Member((3, 1, 1), max_wait=5.0)
    member.turn((1, Live(9, 9, 90)), counted(1))
    assert member.engine.calls == []
    member.now += 2.0
    member.turn()
    assert member.timeout == pytest.approx(3.0)
    assert member.engine.calls == []
    assert member.loop.stats.expired_waits == 0
    member.now += 3.0
    member.turn()
    assert member.timeout == 0.0
    assert [call[0] for call in member.engine.calls] == ["admit", "step"]
    assert member.loop.stats.expired_waits == 1


def test_a_threshold_that_is_reached_forces_nothing():
    member = Member((2, 1, 1), max_wait=5.0)
    member.turn((1, Live(9, 9, 90)), counted(1))
    member.now += 3.0
    member.turn(counted(2))
    assert member.engine.calls[-1][1] == [(1, 3), (2, 3)]
    assert member.loop.stats.expired_waits == 0


def test_a_threshold_that_is_reached_when_the_wait_ends_forces_nothing():
    member = Member((2, 1, 1), max_wait=5.0)
    member.turn((1, Live(9, 9, 90)), counted(1))
    member.now += 6.0
    member.turn(counted(2))
    assert member.engine.calls[-1][1] == [(1, 3), (2, 3)]
    assert member.loop.stats.expired_waits == 0


def test_the_wait_is_ten_steps_of_the_slowest_member_once_all_are_known():
    member = Member((3, 1, 1))
    member.turn((1, Live(9, 9, 90, 0.5)), (2, Live(0, 0, 0, 0.2)), counted(1))
    member.turn()
    assert member.timeout == UNKNOWN_WAIT_S, "its own steps are not known"
    for _ in range(WARM_UP):
        member.loop.meter.launched([(make_visit(9, 5, 4, prompt=4), 1)])
        member.now += 0.01
        member.loop.meter.launching(member.now)
    member.loop.visits.get(1).ready_since = member.now
    member.turn()
    member.turn()
    assert member.timeout == pytest.approx(5.0)
    member.turn((1, Live(9, 9, 90, 0.001)), (2, Live(0, 0, 0, 0.002)))
    member.turn()
    assert member.timeout == pytest.approx(0.1)
    member.turn((2, Live(0, 0, 0, 0.0)))
    member.turn()
    assert member.timeout == UNKNOWN_WAIT_S


def test_members_hear_of_steps_that_became_longer():
    member = Member()
    member.turn(*member.arrive(1))
    plain = member.engine.step

    def slow(work, signals, meanwhile):
        member.now += 0.25
        return plain(work, signals, meanwhile)

    member.engine.step = slow
    told = [entry for _ in range(2 + WARM_UP) for entry in member.turn() if entry[1] == 2]
    assert [entry[-1].step_s for entry in told if isinstance(entry[-1], Live)] == [0.25]


def test_without_a_maximum_wait_it_sleeps_until_something_comes():
    member = Member((3, 1, 1), max_wait=float("inf"))
    member.turn((1, Live(9, 9, 90)), counted(1))
    member.now += 1e6
    member.turn()
    assert member.timeout is None
    assert member.engine.calls == []
    assert member.loop.stats.expired_waits == 0


def test_fewer_live_requests_anywhere_lower_the_threshold_at_once():
    member = Member((3, 1, 1))
    member.turn((1, Live(9, 9, 90)), counted(1))
    assert member.engine.calls == []
    member.turn((1, Live(1, 9, 90)))
    assert member.engine.calls == []
    member.turn((1, Live(0, 8, 80)))
    assert member.engine.calls[-1][0] == "step"


def test_live_is_told_with_other_news_and_at_once_when_it_falls():
    member = Member()
    assert member.turn(counted(1)) == [], "that there is more to wait for can wait"
    to = route(0, 1, 2, algorithm=f"{HERE}:Bursts")
    told = member.turn((FRONT_END, make_submit(2, to=to)))
    lives = [entry for entry in told if isinstance(entry[-1], Live)]
    assert lives == [("to", 1, Live(2, 2, 9))], "only where a frame goes anyway"
    told = member.turn((FRONT_END, Abort(1)))
    assert [entry for entry in told if entry[0] == "to"] == [("to", 1, Live(1, 1, 4))]
    told = member.turn((FRONT_END, Abort(2)))
    falls = [entry for entry in told if isinstance(entry[-1], Live)]
    assert falls == [("to", 1, Live(0, 0, 0))], "member 2 was never told of more"


def test_a_visit_without_memory_is_told_blocked_and_admitted():
    engine = FakeEngine(pool_tokens=8)
    member = Member(engine=engine)
    assert member.turn(*member.arrive(1)) == [("to", 2, Commit(1, 4, 4, [100]))]
    told = member.turn(*member.arrive(2))
    # 4 + 1 of 8 tokens are held by the older visit, and the younger one needs 4.
    assert ("to", 2, Blocked(2)) in told
    assert ("to", 2, Commit(1, 4, 5, [100])) in told
    assert not any(isinstance(entry[2], Admitted) for entry in member.turn())
    told = member.turn((2, Close(1)))
    assert told == [("to", 2, Admitted(2)), ("to", 2, Commit(2, 4, 4, [100]))]
    assert member.turn() == [("to", 2, Commit(2, 4, 5, [100]))]


def test_a_blocked_visit_that_is_closed_is_forgotten():
    engine = FakeEngine(pool_tokens=8)
    member = Member(engine=engine)
    member.turn(*member.arrive(1))
    member.turn(*member.arrive(2))
    member.turn((2, Close(2)), (2, Close(1)))
    assert member.turn() == []
    assert member.timeout is None
    assert (engine.free, engine.slots) == (8, engine.max_visits)


BOUND = Sampling(8, grammar=Grammar("regex", "a"))


def bound(uid: int = 1) -> list[tuple[int, Message]]:
    """A visit with a grammar, whose home is member 2."""
    return [
        (2, Open(uid, PROMPT, BOUND, route(2, 0, home=2), False)),
        (2, HandOver(uid, 4, 3, [110], 0)),
    ]


def test_a_visit_whose_grammar_is_being_compiled_is_told_blocked_and_admitted():
    member = Member()
    member.engine.preparing = {1: None}
    assert member.turn(*bound()) == [("to", 2, Blocked(1))]
    assert member.turn() == []
    assert member.timeout is None, "it sleeps until it is woken"
    told = member.turn(*member.arrive(2))
    assert told == [("to", 2, Commit(2, 4, 4, [100]))], "others go on"
    member.engine.preparing = {}
    told = member.turn((2, Close(2)))
    assert told == [("to", 2, Admitted(1)), ("to", 2, Commit(1, 4, 4, [100]))]
    member.engine.calls.clear()
    member.turn()
    assert ("prepare", 1) not in member.engine.calls, "it is not asked again"


def test_a_grammar_that_is_ready_costs_nothing():
    member = Member()
    assert member.turn(*bound()) == [("to", 2, Commit(1, 4, 4, [100]))]


@pytest.mark.parametrize("late", [False, True])
def test_what_is_no_grammar_fails_its_request_with_status_400(late: bool):
    member = Member()
    wrong = RequestError("regex: unclosed", "regex")
    member.engine.preparing = {1: None if late else wrong}
    told = member.turn(*bound())
    if late:
        member.engine.preparing = {1: wrong}
        told = member.turn()
    assert told == [("to", 2, Failed(1, "regex: unclosed", 400, "regex"))]
    assert member.turn() == []
    assert not [call for call in member.engine.calls if call[0] == "step"]
    member.turn((2, Close(1)))
    assert len(member.loop.visits) == 0


def test_a_request_that_is_closed_while_its_grammar_is_compiled_is_forgotten():
    member = Member()
    member.engine.preparing = {1: None}
    member.turn(*bound())
    assert member.turn((2, Close(1))) == []
    assert not member.loop.blocking._preparing


def test_the_prompt_is_computed_before_control_comes_only_if_asked():
    for eager in (False, True):
        member = Member(limits=Limits(16, 1))
        member.turn((2, Open(1, PROMPT, Sampling(8), route(2, 0, home=2), eager)))
        fed = [call[1] for call in member.engine.calls if call[0] == "step"]
        assert fed == ([[(1, 2)]] if eager else [])
        member.turn()
        member.turn()
        fed = [call[1] for call in member.engine.calls if call[0] == "step"]
        assert fed == ([[(1, 2)], [(1, 1)]] if eager else []), "then there is nothing left to do"


def test_a_prompt_is_shared_when_its_last_chunk_is_computed():
    member = Member(limits=Limits(16, 1))
    member.turn((FRONT_END, make_submit(1, range(101, 106), to=everyone())))
    assert member.engine.shared == []
    member.turn()
    assert member.engine.shared == [(1, 4)]
    member.turn()
    member.turn()
    assert member.engine.shared == [(1, 4)]


def test_early_work_without_memory_is_given_up():
    engine = FakeEngine(pool_tokens=5)
    member = Member(engine=engine)
    member.turn(*member.arrive(1))
    running = member.loop.visits.get(1)
    assert running is not None
    member.loop._apply_events()
    running.control = False
    told = member.turn((2, Open(2, PROMPT, Sampling(8), route(2, 0, home=2), True)))
    assert not any(isinstance(entry[2], Blocked) for entry in told)
    visit = member.loop.visits.get(2)
    assert visit is not None and not visit.eager and not visit.blocked


def test_early_work_that_runs_out_of_memory_half_way_is_given_up():
    member = Member(limits=Limits(16, 1))
    member.turn((2, Open(1, PROMPT, Sampling(8), route(2, 0, home=2), True)))
    member.engine.free = 0
    assert member.turn() == []
    visit = member.loop.visits.get(1)
    assert visit is not None
    assert (visit.computed, visit.resident, visit.eager) == (2, True, False)


@pytest.mark.parametrize("cached", [0, 2])
def test_an_answer_says_what_the_prefix_cache_had(cached: int):
    member = Member(engine=FakeEngine(cached=cached))
    member.turn((FRONT_END, make_submit(1, to=route(0))))
    ((_, output),) = member.turn()
    assert output.cached_tokens == cached


def test_an_answer_without_a_step_had_nothing_cached():
    member = Member(engine=FakeEngine(cached=2))
    member.turn((FRONT_END, make_submit(1, to=route(0))), (FRONT_END, Abort(1)))
    ((_, output),) = member.turn()
    assert output.cached_tokens == 0


def test_inspection_reports_what_the_member_holds():
    member = Member((2, 1, 1))
    late = [(2, Close(8)), (2, Blocked(9)), (2, Blocked(9))]
    member.turn((1, Live(3, 3, 30)), counted(1), *member.arrive(7), *late)
    told = member.turn((FRONT_END, Inspect(5)))
    (state,) = [each for entry in told for each in entry if isinstance(each, MemberState)]
    assert (state.ticket, state.member) == (5, 0)
    assert (state.visits, state.requests, state.live, state.threshold) == (2, 1, 4, 2)
    assert (state.pool_tokens, state.free_tokens) == (1000, 1000 - 3 - 4 - 0)
    assert state.batches == {2: 1}
    assert (state.expired_waits, state.evictions, state.stale) == (0, 0, 3)
    assert state.dropped == {"stale": 2}


def test_the_planner_is_answered_itself():
    member = Member()
    member.turn(*member.arrive())
    ((kind, asker, state),) = [
        entry for entry in member.turn((PLANNER, Inspect(5))) if PLANNER in entry
    ]
    assert (kind, asker, state.ticket, state.plan) == ("to", PLANNER, 5, 0)
    assert state.measurements.at == member.now


PLAN = Plan(4, [(1, 1, 1), (2, 1, 1), (3, 1, 1)], "as measured")


def test_a_plan_is_in_force_at_the_next_launch():
    member = Member()
    member.turn((1, Live(9, 9, 90)), (PLANNER, PLAN), counted(1), counted(2))
    assert member.engine.calls == []
    member.turn((PLANNER, Plan(5, PLAN.table[:2], "better")))
    assert member.engine.calls[-1][1] == [(1, 3), (2, 3)], "a plan may be what they waited for"
    told = member.turn((FRONT_END, Inspect(1)))
    (state,) = [each for entry in told for each in entry if isinstance(each, MemberState)]
    assert (state.plan, state.threshold) == (5, 2)


def test_a_plan_holds_while_the_planner_is_away_but_not_without_one():
    member = Member()
    member.turn((1, Live(9, 9, 90)), (PLANNER, PLAN), counted(1), (SUPERVISOR, Down(PLANNER)))
    assert member.engine.calls == []
    member.turn((SUPERVISOR, Down(PLANNER, for_good=True)))
    assert member.engine.calls[-1][1] == [(1, 3)]


def test_an_unsafe_plan_changes_nothing_and_is_reported():
    member = Member()
    member.turn((PLANNER, Plan(4, [(1, 2, 1)], "wrong")), counted(1))
    assert member.engine.calls[-1][0] == "step"
    told = member.turn((FRONT_END, Inspect(1)))
    (state,) = [each for entry in told for each in entry if isinstance(each, MemberState)]
    assert (state.plan, state.dropped) == (0, {"stale": 2, "plan": 1})


def test_only_the_planner_plans():
    member = Member()
    with pytest.raises(ChannelError, match="member 1 sent Plan to a member"):
        member.turn((1, PLAN))


@pytest.mark.parametrize("interrupted", [False, True])
def test_a_step_is_measured_from_launch_to_launch(interrupted: bool):
    """The algorithm's time and the loop's are part of it; what an operator asks for is not."""
    member = Member()
    plain = member.engine.step

    def slow(work, signals, meanwhile):
        member.now += 0.25
        return plain(work, signals, meanwhile)

    member.engine.step = slow
    member.turn(*member.arrive())
    member.now += 0.5  # in `complete`, say
    for _ in range(2):
        member.turn(*[(FRONT_END, Control(1, "flush_cache", {}))] * interrupted)
    found = member.loop.meter.snapshot(member.now)
    assert found.prefill.count == (not interrupted)
    assert found.prefill.seconds == (0.0 if interrupted else 0.75)
    assert [sums.count for sums in found.steps.values()] == [not interrupted]


@pytest.mark.parametrize("message", ["output", "state"])
def test_what_only_a_detokenizer_receives_is_a_broken_link(message: str):
    member = Member()
    member.turn((FRONT_END, make_submit(1, to=route(0))))
    ((_, emitted),) = member.turn()
    if message == "state":
        told = member.turn((FRONT_END, Inspect(1)))
        (emitted,) = [each for entry in told for each in entry if isinstance(each, MemberState)]
    with pytest.raises(ChannelError, match="member 1 sent"):
        member.turn((1, emitted))


def test_a_hand_over_to_a_home_is_told_from_one_to_a_visitor():
    """Both are `HandOver`: the home's requests are its own, the others only visit."""
    member = Member()
    to = route(0, 1, algorithm=f"{HERE}:Bursts")
    member.turn((FRONT_END, make_submit(1, to=to)), *member.arrive(9))
    member.turn((1, HandOver(1, 2, 4, [150], 0)))
    assert member.loop.home.stale == member.loop.visits.stale == 0
    assert member.engine.calls[-1][1] == [(1, 2), (9, 1)], "its own token and the other's"


def test_run_repeats_the_three_stages_until_a_link_breaks():
    member = Member()
    arrivals = [[], member.arrive(), [], []]

    def poll(timeout: float | None) -> Iterable[tuple[int, Message]]:
        if not arrivals:
            raise Done
        yield from arrivals.pop(0)

    member.links.poll = poll
    with pytest.raises(Done):
        member.loop.run()
    commits = [entry[2] for entry in member.links.log if entry[0] == "to"]
    assert commits == [Commit(1, 4, 4 + i, [100]) for i in range(3)]


def test_step_times_are_counted():
    member = Member()
    plain = member.engine.step

    def slow(work, signals, meanwhile):
        member.now += 0.25 * len(work)
        return plain(work, signals, meanwhile)

    member.engine.step = slow
    member.turn(*member.arrive(1))
    member.turn(*member.arrive(2))
    assert member.loop.stats.batches == {1: 1, 2: 1}
    assert member.loop.stats.step_ms == pytest.approx(375.0)
