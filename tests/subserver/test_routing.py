"""Algorithms behind the loop: made once, asked once a step, and alone in their failures."""

from __future__ import annotations

import random

import pytest

from tests.subserver.algorithms import DECISIONS, FAULTS, HERE
from tests.subserver.builders import make_visit, route
from tests.subserver.harness import Characters, Deployment
from tests.subserver.workload import Mix, differences, make, submit_all
from tokenrouter.errors import RoutingError, Terminated
from tokenrouter.ipc.messages import Route, Sampling
from tokenrouter.schedulers.base import Decision, Step
from tokenrouter.schedulers.signals import Entropy
from tokenrouter.subserver.decisions import MAX_PAYLOAD_BYTES
from tokenrouter.subserver.engine import Visit
from tokenrouter.subserver.routing import Router

STEP = Step((150,), {"entropy": 0.5})


def begun(router: Router, to: Route) -> Visit:
    visit = make_visit(1)
    visit.route = to
    router.begin(visit)
    return visit


def test_a_visit_gets_its_algorithm_state_and_signals():
    visit = begun(
        Router(("a", "b"), 0, Characters()),
        route(algorithm="entropy", router_threshold=0.7, seed=5),
    )
    assert visit.scheduler.router_threshold == 0.7
    assert visit.signals == (Entropy(),)
    assert (visit.request.member, visit.request.seed) == (0, 5)
    assert visit.request.tokens is visit.tokens, "it sees what the visit knows, always"
    bursts = begun(Router(("a", "b"), 0, Characters()), route(algorithm=f"{HERE}:Bursts"))
    assert bursts.request.state.left == 1


def test_requests_with_equal_routes_share_an_instance_and_no_state():
    router = Router(("a", "b"), 0, Characters())
    first, second = (
        begun(router, route(algorithm=f"{HERE}:Bursts", args={"visits": [0, 1]})) for _ in range(2)
    )
    other = begun(router, route(algorithm=f"{HERE}:Bursts", args={"visits": [1, 0]}))
    assert first.scheduler is second.scheduler is not other.scheduler
    assert first.request.state is not second.request.state


def test_signals_are_those_of_this_member():
    assert begun(Router(("a", "b"), 1, Characters()), route(algorithm="entropy")).signals == ()


def test_nothing_is_sent_when_control_stays():
    router = Router(("a", "b"), 0, Characters())
    visit = begun(router, route(algorithm=f"{HERE}:Bounce", args={"hops": 1}))
    assert router.decide(visit, STEP) == (Decision(0, 1), b"\x01")
    router.receive(visit, b"\x01")
    assert router.decide(visit, STEP) == (Decision(1, 0), b"")


def test_an_algorithm_that_cannot_be_made_is_an_error_of_the_request():
    for algorithm, args in [("nosuch", {}), ("single", {"x": 1}), (f"{HERE}:Nobody", {})]:
        with pytest.raises(RoutingError, match=f"{algorithm.partition(':')[0]}.*start failed"):
            begun(Router(("a", "b"), 0, Characters()), route(algorithm=algorithm, args=args))


def test_what_an_algorithm_raises_is_logged_with_its_request(caplog: pytest.LogCaptureFixture):
    broken = route(algorithm=f"{HERE}:Faulty", args={"fault": "start raises"})
    with pytest.raises(RoutingError, match=r"\(request 1\)$"):  # so both can be found
        begun(Router(("a", "b"), 0, Characters()), broken)
    (record,) = caplog.records
    assert record.getMessage().startswith("request 1: start of ")
    assert record.exc_info is not None


def test_what_it_refuses_on_purpose_needs_no_traceback(caplog: pytest.LogCaptureFixture):
    with pytest.raises(RoutingError, match="between 2 models"):
        begun(Router(("a", "b", "c"), 0, Characters()), route(algorithm="random"))
    assert caplog.records == []


def test_sigterm_ends_the_process_in_whatever_hook_it_comes():
    def leave(*args: object) -> None:
        raise Terminated(0)

    router = Router(("a", "b"), 0, Characters())
    visit = begun(router, route(algorithm="random", router_threshold=1.0))
    visit.scheduler.route = visit.scheduler.receive = visit.scheduler.start = leave
    with pytest.raises(Terminated):
        router.begin(visit)
    with pytest.raises(Terminated):
        router.decide(visit, STEP)
    with pytest.raises(Terminated):
        router.receive(visit, b"")


def test_the_largest_payload_is_served():
    router = Router(("a", "b"), 0, Characters())
    visit = begun(router, route(algorithm="random", router_threshold=1.0))
    visit.scheduler.send = lambda *args: bytes(MAX_PAYLOAD_BYTES)
    assert len(router.decide(visit, STEP)[1]) == MAX_PAYLOAD_BYTES


@pytest.mark.parametrize("fault", DECISIONS)
def test_an_impossible_decision_names_the_algorithm(fault: str):
    router = Router(("a", "b", "c"), 0, Characters())
    args = {"fault": fault, "good": 0}
    visit = begun(router, route(algorithm=f"{HERE}:Faulty", args=args))
    with pytest.raises(RoutingError, match=r"Faulty.*\(request 1\)$"):
        router.decide(visit, STEP)


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("on", [0, 1])
def test_a_broken_algorithm_fails_its_own_request_only(fault: str, on: int):
    """At home and away, among requests that go on."""
    deployment = Deployment([1, 3, 1], seed=on, eager=bool(on))
    jobs = make(random.Random(fault), Mix(8, room=20, members=3), deployment.eos_ids)
    args = {"fault": fault, "on": on}
    broken = Route(f"{HERE}:Faulty", (0, 1), 0, None, args, token_models=True)
    submit_all(deployment, jobs)
    deployment.submit(99, [110, 120], broken, Sampling(20, ignore_eos=True), stream=False)
    if fault == "repeats for ever" and on == 1:
        # Decision(0, 0) from member 1 is a hand-over: member 0 writes, and asks again.
        deployment.abort(99, 0)
    deployment.run()
    deployment.assert_clean()
    assert differences(deployment, jobs) == []
    finish = deployment.answers["99"].finish
    assert finish is not None and finish["type"] == "abort"
    if finish["message"] != "Aborted by the client":
        assert finish["status_code"] == 500
        assert "Faulty" in finish["message"]
