"""A member's counters are exactly what a known run did."""

from __future__ import annotations

import pytest

from tests.subserver.harness import Deployment
from tokenrouter.ipc.member_state import Counters, MemberState
from tokenrouter.ipc.messages import Route, Sampling
from tokenrouter.subserver.loop import Subserver
from tokenrouter.subserver.state import Parts, state

PROMPT = [101, 102, 103]
LENGTH = 40
REQUESTS = 12
ROUTE = Route("random", (0, 1), 0, 0.4, {}, seed=7, token_models=True)


def state_of(deployment: Deployment, member: Subserver) -> tuple[MemberState, Counters]:
    parts = Parts(
        member.member, member.engine, member.visits, member.memory, member.home, member.stats,
        member.meter, member.thresholds, None,
    )  # fmt: skip
    answer = state(5, parts, deployment.links[member.member], deployment.now)
    assert answer.counters is not None
    return answer, answer.counters


@pytest.fixture(params=[(1, 1), (1, 4), (3, 2)], ids=str)
def served(request: pytest.FixtureRequest) -> Deployment:
    """Twelve requests of forty tokens, written by two members at random."""
    deployment = Deployment(request.param, seed=3)
    for uid in range(REQUESTS):
        prompt = [*PROMPT, 104 + uid]
        deployment.submit(uid, prompt, ROUTE, Sampling(LENGTH, top_k=1, ignore_eos=True))
    deployment.run()
    return deployment


def test_tokens_are_those_of_the_answers(served: Deployment) -> None:
    writers = [writer for answer in served.answers.values() for writer in answer.models]
    for member in served.members:
        _, counters = state_of(served, member)
        assert counters.written_tokens == writers.count(member.member)
    assert len(writers) == REQUESTS * LENGTH


def test_hand_overs_by_giver_and_receiver(served: Deployment) -> None:
    # The small model's token is dropped at each position of the large one, which hands
    # back unless its token was the last.
    models = [answer.models for answer in served.answers.values()]
    to_large = sum(writers.count(1) for writers in models)
    to_small = to_large - sum(writers[-1] for writers in models)
    _, home = state_of(served, served.members[0])
    _, other = state_of(served, served.members[1])
    assert home.hand_overs == {0: {1: to_large}, 1: {0: to_small}}
    assert other.hand_overs == {}
    assert to_large + to_small == sum(answer.hand_overs for answer in served.answers.values())


def test_histograms_count_what_happened(served: Deployment) -> None:
    for member in served.members:
        answer, counters = state_of(served, member)
        sizes = served.batches[member.member]
        assert answer.batches == {size: sizes.count(size) for size in set(sizes)}
        assert sum(sum(times.counts) for times in counters.steps.values()) == len(sizes)
        for bound, times in counters.steps.items():
            assert sum(times.counts) == sum(bound / 2 < size <= bound for size in sizes)
        # Every row of every batch was ready, and asked its algorithm.
        assert sum(counters.threshold_wait.counts) == sum(sizes)
        assert sum(counters.routing["route"].counts) == sum(sizes)
        assert sum(counters.routing["start"].counts) == REQUESTS


def test_every_token_in_kv_was_computed_once(served: Deployment) -> None:
    for member in served.members:
        _, counters = state_of(served, member)
        # What is known at the end of a request is in KV, but for what came after its last step.
        most = REQUESTS * (len(PROMPT) + 1 + LENGTH - 1)
        assert most - REQUESTS * LENGTH < counters.fed_tokens <= most
    _, home = state_of(served, served.members[0])
    assert home.admitted_tokens == REQUESTS * (len(PROMPT) + 1)
    assert home.cached_tokens == 0


def test_nothing_is_held_afterwards(served: Deployment) -> None:
    for member in served.members:
        answer, counters = state_of(served, member)
        held = (counters.waiting, counters.ready, counters.blocked, counters.parked)
        assert held == (0, 0, 0, 0)
        assert counters.parked_tokens == 0
        assert (answer.visits, answer.requests, answer.live) == (0, 0, 0)
        assert (answer.evictions, answer.expired_waits, answer.dropped) == (0, 0, {})


def test_what_is_held_in_the_middle() -> None:
    deployment = Deployment((1, 1), pools=60, seed=1)
    for uid in range(8):
        deployment.submit(uid, PROMPT * 3, ROUTE, Sampling(20, top_k=1, ignore_eos=True))
    most_waiting = most_parked = 0
    while deployment.unfinished:
        assert deployment.turn()
        for member in deployment.members:
            answer, counters = state_of(deployment, member)
            here = counters.ready + counters.blocked
            assert here + counters.parked == answer.visits
            assert counters.parked_tokens <= answer.pool_tokens - answer.free_tokens
            most_waiting = max(most_waiting, counters.waiting)
            most_parked = max(most_parked, counters.parked_tokens)
    assert most_waiting > 0
    assert most_parked > 0
