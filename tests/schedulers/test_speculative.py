"""Speculative decoding: rounds of drafts, verdicts, payloads and lengths."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import pytest

from tokenrouter.errors import ConfigError, RequestError
from tokenrouter.ipc.messages import Sampling
from tokenrouter.schedulers.base import Check, Decision, Proposal, Request, Step
from tokenrouter.schedulers.signals import Acceptance, Checks, Proposals
from tokenrouter.schedulers.speculative import (
    LARGE,
    MAX_PAYLOAD_BYTES,
    SMALL,
    Speculative,
    best_length,
    pack,
    unpack,
)

NAMES = ["small", "large"]
LAW = Proposal([5, 9], [0.25, 0.75], [0.125, 0.5], 0.5)


def request(scheduler: Speculative, member: int, drafts: int = 0) -> Request:
    made = Request([1, 2, *range(drafts)], 2, member, drafts=drafts)
    made.state = scheduler.start(made)
    return made


def draft(scheduler: Speculative, small: Request, ends: bool = False) -> Decision:
    decision = scheduler.route(small, Step((9,), {"proposals": LAW}, ends=ends))
    small.drafts = decision.drafts
    return decision


def verdict(scheduler: Speculative, large: Request, accepted: Sequence[bool]) -> Decision:
    checks = [Check(7, 0.5, each) for each in accepted]
    return scheduler.route(large, Step((8,), {}, checks))


def test_a_round_of_drafts_and_the_laws_they_came_from():
    scheduler = Speculative(NAMES, draft_length=3)
    small, large = request(scheduler, SMALL), request(scheduler, LARGE)
    scheduler.receive(small, b"")
    to = [draft(scheduler, small) for _ in range(3)]
    assert to == [Decision(1, SMALL, drafts=1), Decision(1, SMALL, drafts=2),
                  Decision(1, LARGE, drafts=3)]  # fmt: skip
    scheduler.receive(large, scheduler.send(small, Step((9,), {}), to[-1]))
    assert [list(each.ids) for each in large.proposals] == [[5, 9]] * 3
    back = verdict(scheduler, large, [True] * 3)
    scheduler.receive(small, scheduler.send(large, Step((9,), {}), back))
    assert small.state.proposals == []


def test_a_draft_that_would_end_the_output_is_checked_at_once():
    scheduler = Speculative(NAMES, draft_length=3)
    small = request(scheduler, SMALL)
    assert draft(scheduler, small, ends=True) == Decision(1, LARGE, drafts=1)


def test_the_first_rejected_draft_is_replaced():
    scheduler = Speculative(NAMES)
    for accepted, cut in (([False], 1), ([True, False, True], 2), ([True, True, False], 1)):
        decision = verdict(scheduler, request(scheduler, LARGE, 3), accepted)
        assert decision == Decision(1, SMALL, cut=cut)


def test_only_the_exact_rule_adds_a_token_to_a_full_round():
    exact, cascade = Speculative(NAMES), Speculative(NAMES, 0.3, rule="opt")
    assert verdict(exact, request(exact, LARGE, 2), [True, True]) == Decision(1, SMALL)
    assert verdict(cascade, request(cascade, LARGE, 2), [True, True]) == Decision(0, SMALL)


@pytest.mark.parametrize("top_k", [1, 128])
def test_any_sampling_can_be_had_where_the_law_of_drafts_fits(top_k: int):
    cascade = Speculative(["a", "b"], 0.5, rule="chow")
    cascade.check(Sampling(9, top_k=top_k), 320)
    cascade.check(Sampling(9, top_k=2**30), 128)
    Speculative(["a", "b"]).check(Sampling(9, top_k=2**30), 320)


def test_cascade_rules_refuse_laws_that_do_not_fit():
    cascade = Speculative(["a", "b"], 0.5, rule="opt", draft_top_k=32)
    with pytest.raises(
        RequestError, match=r"from 1 to 32 .draft_top_k., or temperature 0"
    ) as caught:
        cascade.check(Sampling(9, top_k=33), 320)
    assert caught.value.field == "top_k"
    with pytest.raises(RequestError, match="got none"):
        cascade.check(Sampling(9, top_k=2**30), 320)


def test_signals():
    assert list(Speculative(NAMES, draft_top_k=7).signals(SMALL)) == [Proposals(7)]
    rule = Acceptance("chow", 0.25)
    assert list(Speculative(NAMES, 0.25, rule="chow").signals(LARGE)) == [Checks(True, rule)]


def test_laws_survive_their_journey():
    sent = [LAW, Proposal([70_000], [1.0], [0.25], 0.5)]
    found = unpack(b"".join(map(pack, sent)))
    told = [Proposal(list(p.ids), list(p.probabilities), list(p.raw), p.top) for p in found]
    assert told == sent
    assert unpack(b"") == []


def test_what_is_measured_sets_the_length():
    scheduler = Speculative(NAMES, draft_length=9, adaptive=True, step_ratio=0.1)
    lengths = {}
    for accepted in (True, False):
        large, small = request(scheduler, LARGE), request(scheduler, SMALL)
        first = small.state.length
        for _ in range(30):
            decision = verdict(scheduler, large, [accepted] * 4)
        scheduler.receive(small, scheduler.send(large, Step((9,), {}), decision))
        lengths[accepted] = small.state.length
    assert (lengths[False], lengths[True]) == (1, 9)
    assert 1 < first < 9


def test_drafts_after_a_rejected_one_measure_nothing():
    scheduler = Speculative(NAMES, adaptive=True)
    states = []
    for rest in ([True, True], [False, False]):
        large = request(scheduler, LARGE, 4)
        verdict(scheduler, large, [True, False, *rest])
        states.append(large.state)
    assert states[0] == states[1]


@pytest.mark.parametrize("bonus", [True, False])
def test_the_best_length_is_the_best_of_all(bonus: bool):
    """Against rounds written out: the probability of each count of drafts that stay."""

    def rate(a: float, ratio: float, length: int) -> float:
        tokens = sum(a**stay * (1 - a) * (stay + 1) for stay in range(length))
        tokens += a**length * (length + bonus)
        return tokens / (length * ratio + 1)

    for a, ratio in product((0.05, 0.3, 0.5, 0.8, 0.95, 1.0), (0.02, 0.1, 0.5, 1.0)):
        chosen = best_length(a, ratio, 12, bonus)
        rates = [rate(a, ratio, length) for length in range(1, 13)]
        assert rates[chosen - 1] == pytest.approx(max(rates), rel=1e-12)


@pytest.mark.parametrize(
    ("threshold", "args", "message"),
    [
        (None, {"rule": "lucky"}, "rule: must be one of exact, chow, .* got 'lucky'"),
        (0.5, {}, "the exact rule of speculative has none"),
        (None, {"rule": "diff"}, "rule diff of speculative needs one"),
        (1.5, {"rule": "diff"}, "from 0 to 1"),
        (None, {"draft_length": 0}, "draft_length: must be a whole number"),
        (None, {"draft_top_k": 2.5}, "draft_top_k: must be a whole number"),
        (None, {"step_ratio": -1}, "step_ratio: must be a number of at least 0"),
        (None, {"draft_length": 8, "draft_top_k": 1000}, "at most 682 fit"),
    ],
)
def test_bad_arguments_are_refused(threshold: float | None, args: dict[str, object], message: str):
    with pytest.raises(ConfigError, match=message):
        Speculative(NAMES, threshold, **args)


def test_the_largest_payload_that_is_allowed_fits():
    scheduler = Speculative(NAMES, draft_length=8, draft_top_k=682)
    small = request(scheduler, SMALL)
    small.state.proposals = [Proposal([1] * 682, [0.0] * 682, [0.0] * 682, 1.0)] * 8
    sent = scheduler.send(small, Step((9,), {}), Decision(1, LARGE, drafts=8))
    assert MAX_PAYLOAD_BYTES - 8 * 12 < len(sent) <= MAX_PAYLOAD_BYTES
