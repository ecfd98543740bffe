"""Hindsight: arguments, decisions, and deployments against its definition (`hindsight_loop`)."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from tests.schedulers.hindsight_loop import EOS, EPSILON, Loop, Rule, loops, rules
from tests.subserver.algorithms import HERE
from tests.subserver.harness import Deployment
from tokenrouter.errors import ConfigError
from tokenrouter.ipc.messages import Logprob, Output, Route, Sampling
from tokenrouter.schedulers.base import Check, Decision, Request, RoutingScheduler, Step
from tokenrouter.schedulers.hindsight import Hindsight
from tokenrouter.schedulers.registry import create
from tokenrouter.schedulers.signals import Checks, Entropy, TopProbability
from tokenrouter.subserver.batching import Limits
from tokenrouter.subserver.engine import Checked, StepBatch, Visit, Work
from tokenrouter.subserver.timed import TimedEngine


def serve(rule: Rule, expected: Sequence[Loop], seed: int, **options: Any) -> Deployment:
    eos_ids = [(EOS,)] * rule.members
    deployment = Deployment([1] * rule.members, seed=seed, eos_ids=eos_ids, **options)
    for uid, loop in enumerate(expected, 1):
        deployment.submit(uid, loop.prompt, rule.route, loop.sampling, stream=uid % 2 == 0)
    return deployment


def assert_equal(deployment: Deployment, expected: Sequence[Loop]) -> None:
    for uid, loop in enumerate(expected, 1):
        got = deployment.answers[str(uid)]
        assert (got.tokens, got.models) == (loop.output, loop.writers), uid
        assert got.finish == loop.over
        counts = [loop.writers.count(member) for member in range(loop.rule.members)]
        assert got.member_tokens == counts


def decided(scheduler: RoutingScheduler, request: Request, step: Step, payload: bytes = b""):
    """What it decides after a step, and sends; ``payload`` came first."""
    request.state = scheduler.start(request)
    scheduler.receive(request, payload)
    decision = scheduler.route(request, step)
    return decision, scheduler.send(request, step, decision)


OPTIONS = [{}, {"final": False}, {"window": 4}, {"final": False, "window": 1}]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("which", range(3), ids=["entropy", "random", "cascade"])
def test_deployments_write_what_the_definition_says(which: int, options: dict[str, Any]):
    rule = rules(**options)[which]
    expected = loops(rule, 12, seed=which)
    deployment = serve(rule, expected, seed=which)
    deployment.run()
    assert_equal(deployment, expected)
    deployment.assert_clean()
    assert sum(loop.cuts for loop in expected) > 5
    assert {(loop.over or {}).get("type") for loop in expected} == {"length", "stop"}


@pytest.mark.parametrize("which", range(3), ids=["entropy", "random", "cascade"])
def test_and_so_they_do_with_small_pools_chunks_and_clients_that_leave(which: int):
    rule = rules()[which]
    expected = loops(rule, 24, seed=9, longest=20)
    options = {"pools": 40, "limits": Limits(3, 2), "eager": True}
    deployment = serve(rule, expected, seed=which, **options)
    for uid in (3, 8, 13):
        deployment.at(40.0 * uid, lambda uid=uid: deployment.abort(uid, 0))
    deployment.run()
    deployment.assert_clean()
    assert any(member.memory.evictions for member in deployment.members)
    for uid, loop in enumerate(expected, 1):
        got = deployment.answers[str(uid)]
        if got.finish == loop.over:
            assert (got.tokens, got.models) == (loop.output, loop.writers)
        else:
            assert uid in (3, 8, 13)
            assert got.finish["type"] == "abort"
            # What was streamed before stands in the answer that it would have been.
            assert got.tokens == loop.output[: len(got.tokens)]


@pytest.mark.parametrize("checks", [1, 3])
def test_however_many_drafts_a_step_may_check(checks: int):
    rule = rules()[0]
    expected = loops(rule, 16, seed=4)
    deployment = serve(rule, expected, seed=checks, limits=Limits(4, 16, checks))
    deployment.run()
    assert_equal(deployment, expected)
    deployment.assert_clean()


def test_drafts_are_not_streamed_before_they_are_verified():
    """Every draft is refused, so that none of them may ever be seen."""
    verify = {"epsilon": 0.999999}
    rule = replace(rules()[0], verify=verify)
    loop = Loop(rule, [101, 102], Sampling(24, ignore_eos=True)).run()
    assert set(loop.writers) == {1}
    deployment = serve(rule, [loop], seed=1)
    deployment.run()
    assert_equal(deployment, [loop])


class Signing(TimedEngine):
    """Whose log probabilities tell who wrote which token."""

    def step(self, work: Sequence[Work], *args: Any) -> StepBatch:
        batch = super().step(work, *args)
        signed = {row: self._sign(batch.tokens[row]) for row in batch.logprobs}
        return dataclasses.replace(batch, logprobs=signed)

    def _check(self, visit: Visit, positions: range) -> list[Checked]:
        drafts = (visit.tokens[position] for position in positions)
        return [
            Checked(each.check, (self._sign(draft), self._sign(each.check.token)))
            for each, draft in zip(super()._check(visit, positions), drafts, strict=True)
        ]

    def _sign(self, token: int) -> Logprob:
        return Logprob(-1000.0 * self._seed - token, [])


class Reading(Deployment):
    """Keeps the log probabilities that were told."""

    def collect(self, output: Output) -> None:
        super().collect(output)
        self.told = [*getattr(self, "told", []), *(output.logprobs or [])]


@pytest.mark.parametrize("which", range(3), ids=["entropy", "random", "cascade"])
def test_log_probabilities_are_those_of_the_writer(which: int):
    rule = rules()[which]
    for seed in range(4):
        loop = Loop(rule, [101, 102 + seed], Sampling(30, ignore_eos=True, logprobs=0)).run()
        deployment = Reading([1] * rule.members, seed=seed, engine=Signing)
        deployment.submit(1, loop.prompt, rule.route, loop.sampling)
        deployment.run()
        assert_equal(deployment, [loop])
        wrote = zip(loop.writers, loop.output, strict=True)
        assert [each.logprob for each in deployment.told] == [-1000.0 * w - t for w, t in wrote]


def test_unlike_without_it():
    rule = rules()[0]
    plain = Route("entropy", (0, 1), 0, 0.85)
    loop = Loop(rule, [101, 102], Sampling(30, ignore_eos=True)).run()
    deployment = Deployment([1, 1], seed=1)
    deployment.submit(1, loop.prompt, plain, loop.sampling)
    deployment.run()
    assert deployment.answers["1"].tokens != loop.output


def test_many_hand_overs_with_drafts_are_not_going_round_in_circles():
    """The middle model rescues the small one more often than idle moves are allowed."""
    route = Route("cascade", (0, 1, 2), 0, None, {"thresholds": [1.0, 0.0], "verify": {}})
    deployment = Deployment([1, 1, 1], seed=1)
    deployment.submit(1, [101], route, Sampling(120, ignore_eos=True))
    deployment.run()
    answer = deployment.answers["1"]
    assert answer.finish == {"type": "length", "length": 120}
    assert answer.hand_overs > 100


def test_the_verifier_cuts_the_first_draft_that_it_thinks_unlikely():
    scheduler = create("entropy", ["small", "large"], 0.5, {"verify": {"epsilon": 0.3}})
    request = Request([1, 10, 11, 12], 1, 1, drafts=3)
    checks = [Check(20, 0.3, False), Check(21, 0.29, False), Check(22, 0.1, True)]
    decision, payload = decided(scheduler, request, Step((30,), {}, checks), b"\0")
    assert decision == Decision(1, 0, cut=2)
    scheduler.receive(request, payload)  # tells the inner algorithm nothing
    likely = [Check(20, 0.3, False)] * 3
    decision, _ = decided(scheduler, request, Step((30,), {}, likely), b"\0")
    assert decision == Decision(1, 0)
    unknown = [Check(20, float("nan"), False)] * 3
    assert decided(scheduler, request, Step((30,), {}, unknown), b"\0")[0].cut == 3


def test_what_the_others_write_is_not_final():
    scheduler = create("cascade", ["a", "b", "c"], 0.5, {"verify": {}})
    sure, unsure = {"top_probability": 0.6}, {"top_probability": 0.4}
    request = Request([1, 10], 1, 0, drafts=1)
    assert decided(scheduler, request, Step((5,), sure))[0] == Decision(1, 0, drafts=2)
    assert decided(scheduler, request, Step((5,), unsure))[0] == Decision(0, 1, drafts=1)
    request.member = 1
    assert decided(scheduler, request, Step((5,), unsure))[0] == Decision(0, 2, drafts=1)
    request.member = 2
    checks = [Check(20, 0.5, False)]
    assert decided(scheduler, request, Step((5,), {}, checks))[0] == Decision(1, 0)


def test_the_end_is_checked_or_final():
    request, ends = Request([1, 10], 1, 0, drafts=1), Step((5,), {"entropy": 0.1}, ends=True)
    checks = create("entropy", ["s", "l"], 0.5, {"verify": {}})
    decision, payload = decided(checks, request, ends)
    assert decision == Decision(1, 1, drafts=2)
    there = Request([1, 10, 5], 1, 1, drafts=2)
    both = [Check(20, 0.5, False)] * 2
    assert decided(checks, there, Step((30,), {}, both), payload)[0] == Decision(1, 0)
    plain = create("entropy", ["s", "l"], 0.5, {"verify": {"final": False}})
    assert decided(plain, request, ends)[0] == Decision(1, 0)
    dropped = Step((5,), {"entropy": 0.9}, ends=True)
    assert decided(checks, request, dropped)[0] == Decision(0, 1, drafts=1)


def test_signals_are_the_inner_ones_and_checks_of_the_last_member():
    scheduler = create("entropy", ["s", "l"], 0.5, {"verify": {}})
    assert [list(scheduler.signals(m)) for m in (0, 1)] == [[Entropy()], [Checks()]]
    scheduler = create("cascade", ["a", "b", "c"], 0.5, {"verify": {}})
    wanted = [[TopProbability()], [TopProbability()], [Checks()]]
    assert [list(scheduler.signals(m)) for m in range(3)] == wanted


def test_state_and_payloads_of_the_inner_algorithm_are_its_own():
    """`Bursts` counts its tokens on each member and sends a sum over all of them."""
    route = Route(f"{HERE}:Bursts", (0, 1), 0, None, {"verify": {"epsilon": 1e-9}}, seed=3)
    plain = Route(f"{HERE}:Bursts", (0, 1), 0, None, {}, seed=3)
    sampling = Sampling(40, ignore_eos=True)
    tokens = []
    for each in (route, plain):
        deployment = Deployment([1, 1], seed=5)
        deployment.submit(1, [101, 102], each, sampling)
        deployment.run()
        tokens.append(deployment.answers["1"].tokens)
    assert tokens[0] == tokens[1]


class Drafting(RoutingScheduler):
    """One that drafts by itself."""

    drafts = True

    def route(self, request: Request, step: Step) -> Decision:
        return Decision(1, 0)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"epsilon": 0.0}, "verify.epsilon: must lie between 0 and 1, got 0.0"),
        ({"epsilon": 1}, "verify.epsilon"),
        ({"epsilon": "0.1"}, "verify.epsilon"),
        ({"epsilon": float("nan")}, "verify.epsilon"),
        ({"final": 1}, "verify.final: must be true or false"),
        ({"window": 0}, "verify.window"),
        ({"epsilom": 0.1}, "unknown key 'epsilom'; did you mean 'epsilon'"),
        ({"rounds": 2}, "it takes epsilon, final, window"),
        (True, "give {epsilon: 0.1, final: true}"),
    ],
)
def test_wrong_options_are_refused(options: object, complaint: str):
    with pytest.raises(ConfigError, match=complaint):
        create("entropy", ["s", "l"], 0.5, {"verify": options})


def test_who_drafts_or_is_alone_is_refused():
    with pytest.raises(ConfigError, match="drafts and checks by itself"):
        create(f"{__name__}:Drafting", ["s", "l"], None, {"verify": {}})
    with pytest.raises(ConfigError, match="needs a second model"):
        create("single", ["s"], None, {"verify": {}})


ARGUMENTS = {
    "r_stitch": (0.6, {"metric": "maxp"}),
    "momentum": (0.2, {}),
    "rolling": (0.5, {}),
    "duo_rolling": (0.5, {}),
    "immediate": (0.5, {}),
    "single": (None, {}),
}


@pytest.mark.parametrize("name", ARGUMENTS)
def test_algorithms_with_a_state_go_on_after_cuts(name: str):
    threshold, args = ARGUMENTS[name]
    verify = {"epsilon": EPSILON, "window": 5}
    route = Route(name, (0, 1), 0, threshold, {**args, "verify": verify}, token_models=True)
    deployment = Deployment([1, 1], pools=80, seed=2)
    for uid in range(1, 9):
        sampling = Sampling(5 * uid, ignore_eos=uid % 2 == 0)
        deployment.submit(uid, [100 + uid], route, sampling, stream=uid % 3 == 0)
    deployment.run()
    deployment.assert_clean()
    for answer in deployment.answers.values():
        assert (answer.finish or {})["type"] in ("length", "stop")
    assert sum(answer.models.count(1) for answer in deployment.answers.values()) > 5


def test_algorithms_of_whole_steps_are_refused():
    with pytest.raises(ConfigError, match="glimp_router decides on more than single tokens"):
        create("glimp_router", ["s", "l"], None, {"verify": {}})


def test_defaults():
    scheduler = create("random", ["s", "l"], 0.5, {"verify": {}})
    assert isinstance(scheduler, Hindsight)
    assert (scheduler.epsilon, scheduler.final, scheduler.window) == (0.1, True, None)
