"""The home of a request: the star protocol, the finish, who waits, what is streamed."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.subserver.builders import make_roster, make_submit, route
from tokenrouter.ipc.messages import (
    FRONT_END,
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
    Open,
    Output,
    Route,
    Sampling,
)
from tokenrouter.subserver.home import MAX_IDLE_MOVES, Home

PROMPT = [101, 102, 103]


class Desk:
    """A home, what it posted since the last look, and short ways to tell it things."""

    def __init__(self, members: int = 2, eager: bool = False, **roster: int) -> None:
        self.posted: list[tuple[int, object]] = []
        eos_ids = [(199,), (198,), (197,), (196,)]
        self.home = Home(
            0,
            make_roster(members, eos_ids=eos_ids, **roster),
            lambda member, message: self.posted.append((member, message)),
            lambda uid: 2,
            lambda ids: "".join(map(chr, ids)),
            eager,
        )

    def look(self) -> list[tuple[int, object]]:
        posted, self.posted = self.posted, []
        return posted

    def submit(self, uid: int = 1, prompt: Sequence[int] = PROMPT, **options: object) -> None:
        submit = make_submit(uid, prompt, **options)
        self.home.receive(FRONT_END, submit)

    def commit(self, sender: int, epoch: int, start: int, *tokens: int, uid: int = 1) -> None:
        self.home.receive(sender, Commit(uid, epoch, start, list(tokens)))

    def hand_over(
        self, sender: int, epoch: int, start: int, *tokens: int, to: int, payload: bytes = b""
    ) -> None:
        self.home.receive(sender, HandOver(1, epoch, start, list(tokens), to, payload))

    def output(self) -> Output:
        (output,) = self.home.take_outputs()
        return output


def limit(most: int, **options: object) -> Sampling:
    return Sampling(most, **options)


# The star protocol


def test_a_request_opens_at_home_and_gets_control_there():
    desk = Desk()
    desk.submit()
    sent = make_submit(1)
    assert desk.look() == [
        (0, Open(1, PROMPT, sent.sampling, sent.route, False)),
        (0, HandOver(1, 1, 3, [], 0)),
    ]
    assert 1 in desk.home and len(desk.home) == 1


def test_eager_visits_open_everywhere_on_the_route_at_once():
    desk = Desk(members=4, eager=True)
    desk.submit(to=route(3, 0, 1))
    posted = desk.look()
    opens = [(to, message.eager) for to, message in posted if isinstance(message, Open)]
    assert opens == [(3, True), (0, False), (1, True)]
    assert posted[-1] == (0, HandOver(1, 1, 3, [], 0))
    desk.hand_over(0, 1, 3, 110, to=1)
    assert desk.look() == [(1, HandOver(1, 2, 3, [110], 1))], "it is open there already"


def test_a_grammar_is_sent_everywhere_at_once_and_no_prompt_is_computed_early():
    desk = Desk(members=3)
    desk.submit(to=route(0, 2), sampling=limit(4, grammar=Grammar("regex", "a")))
    opened = [(member, message) for member, message in desk.look() if isinstance(message, Open)]
    assert [(member, message.eager) for member, message in opened] == [(0, False), (2, False)]


def test_control_that_stays_tells_nobody():
    desk = Desk()
    desk.submit()
    desk.look()
    desk.commit(0, 1, 3, 110)
    desk.commit(0, 1, 4, 111)
    assert desk.look() == []
    assert desk.output().tokens == [110, 111]


def test_open_comes_before_the_first_hand_over_and_only_missing_tokens_travel():
    desk = Desk()
    desk.submit()
    desk.look()
    desk.commit(0, 1, 3, 110)
    desk.hand_over(0, 1, 4, 111, to=1, payload=b"x")
    opened, handed = desk.look()
    assert isinstance(opened[1], Open) and opened[0] == 1
    assert handed == (1, HandOver(1, 2, 3, [110, 111], 1, b"x"))
    desk.hand_over(1, 2, 5, 112, to=0)
    assert desk.look() == [(0, HandOver(1, 3, 5, [112], 0))]
    desk.hand_over(0, 3, 6, to=1)
    assert desk.look() == [(1, HandOver(1, 4, 6, [], 1))], "member 1 wrote 112 itself"


def test_a_third_member_gets_everything_the_others_wrote():
    desk = Desk(members=3)
    desk.submit(to=route(0, 1, 2))
    desk.hand_over(0, 1, 3, 110, to=1)
    desk.hand_over(1, 2, 4, 111, to=0)
    desk.look()
    desk.hand_over(0, 3, 5, 112, to=2)
    assert desk.look()[1] == (2, HandOver(1, 4, 3, [110, 111, 112], 2))
    desk.hand_over(2, 4, 6, to=1)
    assert desk.look() == [(1, HandOver(1, 5, 5, [112], 1))]


@pytest.mark.parametrize(
    ("sender", "epoch"), [(1, 1), (0, 2), (1, 3), (0, 0)], ids=["sender", "old", "new", "zero"]
)
def test_a_message_of_another_epoch_or_sender_is_counted_and_not_applied(sender, epoch):
    desk = Desk()
    desk.submit()
    desk.hand_over(0, 1, 3, 110, to=1)
    desk.look()
    desk.commit(sender, epoch, 4, 150)
    desk.hand_over(sender, epoch, 4, 150, to=0)
    assert desk.home.stale == 2
    assert desk.look() == []
    assert desk.output().tokens == [110]


@pytest.mark.parametrize("start", [2, 5], ids=["in the prompt", "past the end"])
def test_a_gap_is_answered_with_an_error(start: int):
    desk = Desk()
    desk.submit()
    desk.hand_over(0, 1, 3, 110, to=1)
    desk.look()
    desk.commit(1, 2, start, 150)
    assert desk.look() == [(0, Close(1)), (1, Close(1))]
    finish = desk.output().finish
    assert finish is not None and (finish["type"], finish["status_code"]) == ("abort", 500)
    assert "member 1 committed at" in finish["message"]


@pytest.mark.parametrize(("start", "drafts"), [(3, 0), (4, 2), (4, -1)])
def test_final_tokens_stand(start: int, drafts: int):
    desk = Desk()
    desk.submit()
    desk.commit(0, 1, 3, 110)
    desk.home.receive(0, Commit(1, 1, start, [111], drafts=drafts))
    finish = desk.output().finish
    assert finish is not None and finish["status_code"] == 500


def test_a_member_may_take_tokens_back():
    desk = Desk(members=3)
    desk.submit(to=route(0, 1, 2))
    desk.home.receive(0, HandOver(1, 1, 3, [110, 111, 112], 1, drafts=2))
    assert desk.home.live.tokens == 6
    assert desk.look()[-1] == (1, HandOver(1, 2, 3, [110, 111, 112], 1, drafts=2))
    desk.hand_over(1, 2, 4, 120, to=0)
    assert desk.home.live.tokens == 5
    assert desk.look() == [(0, HandOver(1, 3, 4, [120], 0))]
    desk.commit(0, 3, 5, 130)
    final = desk.output()
    assert (final.tokens, final.member_tokens) == ([110, 120, 130], [2, 1, 0])


def test_logprobs_of_whoever_wrote_reach_the_output():
    desk = Desk()
    desk.submit(sampling=limit(4, logprobs=1))
    a, b, c = (Logprob(-0.5 * i, [(110, -0.5 * i)]) for i in range(3))
    desk.home.receive(0, Commit(1, 1, 3, [110], [a]))
    desk.home.receive(0, HandOver(1, 1, 4, [111], 1, b"", [b]))
    desk.home.receive(1, Commit(1, 2, 5, [112], [c]))
    assert desk.output().logprobs == [a, b, c]


@pytest.mark.parametrize("logprobs", [None, [], [Logprob(0.0, [])] * 2])
def test_logprobs_that_are_missing_fail_the_request(logprobs: list[Logprob] | None):
    desk = Desk()
    desk.submit(sampling=limit(4, logprobs=0))
    desk.home.receive(0, Commit(1, 1, 3, [110], logprobs))
    finish = desk.output().finish
    assert finish["status_code"] == 500
    assert "log probabilities of 1 tokens" in finish["message"]


def test_an_algorithm_that_hands_over_in_circles_fails_its_request():
    desk = Desk()
    desk.submit()
    for hop in range(MAX_IDLE_MOVES):
        desk.hand_over(hop % 2, 1 + hop, 3, to=1 - hop % 2)
    assert 1 in desk.home
    end = MAX_IDLE_MOVES % 2
    desk.hand_over(end, 1 + MAX_IDLE_MOVES, 3, to=1 - end)
    output = desk.output()
    assert output.tokens == []
    assert output.finish is not None
    assert output.finish["status_code"] == 500
    assert "without a token" in output.finish["message"]


def test_a_token_now_and_then_keeps_hand_overs_going():
    desk = Desk()
    desk.submit(sampling=limit(1000))
    hops = 2 * MAX_IDLE_MOVES + 3
    start = 3
    for hop in range(hops):
        tokens = [110] if hop % 50 == 0 else []
        desk.hand_over(hop % 2, 1 + hop, start, *tokens, to=1 - hop % 2)
        start += len(tokens)
    assert desk.output().hand_overs == hops


# The finish


@pytest.mark.parametrize("eos", [199, 198])
@pytest.mark.parametrize("writer", [0, 1])
def test_any_members_end_of_sequence_ends_it_whoever_wrote_it(eos: int, writer: int):
    desk = Desk()
    desk.submit()
    if writer:
        desk.hand_over(0, 1, 3, to=1)
    desk.commit(writer, 1 + writer, 3, eos)
    assert desk.output().finish == {"type": "stop", "matched": eos}


def test_the_end_of_sequence_of_a_member_off_the_route_is_a_token_like_any():
    desk = Desk(members=3)
    desk.submit(to=route(0, 1))
    desk.commit(0, 1, 3, 197)
    assert desk.output().finish is None


def test_a_stop_string_may_span_tokens_of_two_members():
    desk = Desk()
    desk.submit(sampling=limit(9, stop=(chr(110) + chr(120),)))
    desk.hand_over(0, 1, 3, 110, to=1)
    desk.look()
    desk.hand_over(1, 2, 4, 120, to=0)
    assert desk.look() == [(0, Close(1)), (1, Close(1))], "closed, and not handed over"
    output = desk.output()
    assert (output.tokens, output.member_tokens, output.hand_overs) == ([110, 120], [1, 1], 1)
    assert output.finish == {"type": "stop", "matched": chr(110) + chr(120)}


def test_stop_ids_and_ignore_eos():
    desk = Desk()
    desk.submit(sampling=limit(9, stop_token_ids=(150,)))
    desk.commit(0, 1, 3, 150)
    assert desk.output().finish == {"type": "stop", "matched": 150}
    desk.submit(2, sampling=limit(3, stop_token_ids=(150,), ignore_eos=True))
    desk.commit(0, 1, 3, 150, 199, 198, uid=2)
    assert desk.output().finish == {"type": "length", "length": 3}


def test_nothing_of_a_commit_is_emitted_past_the_finish_in_its_middle():
    desk = Desk()
    desk.submit(sampling=limit(3))
    desk.commit(0, 1, 3, 110)
    desk.commit(0, 1, 4, 111, 112, 113, 114)
    output = desk.output()
    assert (output.tokens, output.completion_tokens) == ([110, 111, 112], 3)
    assert output.finish == {"type": "length", "length": 3}
    desk.commit(0, 1, 8, 115)
    assert desk.home.take_outputs() == []
    assert desk.home.stale == 1


@pytest.mark.parametrize("stays", [True, False])
def test_no_tokens_wanted(stays: bool):
    desk = Desk()
    desk.submit(sampling=limit(0))
    if stays:
        desk.commit(0, 1, 3, 110)
    else:
        desk.hand_over(0, 1, 3, to=1)
    output = desk.output()
    assert (output.tokens, output.finish) == ([], {"type": "length", "length": 0})
    assert (output.cached_tokens, output.hand_overs) == (2, 0)


def test_the_finish_closes_the_request_wherever_it_is_open():
    desk = Desk(members=3)
    desk.submit(sampling=limit(2), to=route(0, 1, 2))
    desk.hand_over(0, 1, 3, 110, to=2)
    desk.look()
    desk.commit(2, 2, 4, 111)
    assert desk.look() == [(0, Close(1)), (2, Close(1))]
    assert 1 not in desk.home
    assert desk.home.live == Live(0, 0, 0)


# Aborts and failures


def test_abort_of_a_running_request():
    desk = Desk()
    desk.submit()
    desk.commit(0, 1, 3, 110)
    desk.home.receive(FRONT_END, Abort(1))
    output = desk.output()
    assert output.tokens == [110]
    assert output.finish == {"type": "abort", "message": "Aborted by the client"}
    assert desk.look()[-1] == (0, Close(1))
    assert desk.home.live == Live(0, 0, 0)


def test_an_abort_tells_no_drafts():
    desk = Desk()
    desk.submit()
    desk.home.receive(0, Commit(1, 1, 3, [110, 111, 112], drafts=2))
    desk.home.receive(FRONT_END, Abort(1))
    output = desk.output()
    assert (output.tokens, output.completion_tokens, output.member_tokens) == ([110], 1, [1, 0])


def test_abort_of_a_waiting_request_opens_nothing_and_the_next_one_moves_up():
    desk = Desk(pool_tokens=10)
    desk.submit(1)
    desk.submit(2, [101] * 9)
    desk.submit(3)
    assert (len(desk.home), desk.home.live.owned) == (3, 1)
    desk.look()
    desk.submit(4)
    desk.home.receive(FRONT_END, Abort(4))
    assert desk.output().rid == "r4"
    desk.home.receive(0, Failed(2, "it is not open anywhere", 500))
    assert (desk.look(), desk.home.stale) == ([], 1)
    desk.home.receive(FRONT_END, Abort(2))
    output = desk.output()
    assert (output.rid, output.tokens) == ("r2", [])
    assert output.finish == {"type": "abort", "message": "Aborted by the client"}
    assert {message.uid for _, message in desk.look()} == {3}
    assert (len(desk.home), desk.home.live.owned) == (2, 2)


def test_abort_of_a_request_that_is_not_here():
    desk = Desk()
    desk.home.receive(FRONT_END, Abort(5))
    assert desk.home.take_outputs() == []
    assert desk.home.stale == 1


def test_what_a_member_says_of_a_finished_request_is_counted():
    desk = Desk()
    desk.submit()
    desk.home.receive(FRONT_END, Abort(1))
    desk.commit(0, 1, 3, 110)
    desk.home.receive(1, Failed(1, "late", 500))
    desk.home.receive(1, Blocked(1))
    assert desk.home.stale == 3
    assert desk.output().tokens == []


@pytest.mark.parametrize(("status", "field"), [(500, None), (503, None), (400, "regex")])
def test_a_failure_is_answered(status: int, field: str | None):
    desk = Desk()
    desk.submit()
    desk.home.receive(1, Failed(1, "it broke", status, field))
    finish = desk.output().finish
    assert finish is not None
    assert (finish["message"], finish["status_code"]) == ("it broke", status)
    assert finish.get("field") == field
    assert desk.look()[-1] == (0, Close(1))


# Who waits


def test_requests_wait_when_nine_tenths_of_the_smallest_pool_are_live():
    desk = Desk(pool_tokens=100)
    desk.submit(1, [101] * 60)
    desk.submit(2, [101] * 31)
    desk.submit(3, [101] * 1)
    assert desk.home.live.owned == 1, "60 + 31 > 90, and the third waits behind the second"
    desk.home.receive(FRONT_END, Abort(1))
    assert desk.home.live == Live(2, 2, 32)


def test_a_health_probe_waits_behind_nobody():
    desk = Desk(pool_tokens=100, max_visits=1)
    desk.submit(1, [101] * 90)
    desk.submit(2, [101] * 31)
    alone = Route("single", (0,), 0)
    desk.submit(3, [101], sampling=limit(2), to=alone)
    desk.submit(4, [101], sampling=limit(1))
    assert desk.home.live.owned == 1, "neither tiny nor alone"
    desk.submit(5, [101], sampling=limit(1), to=alone)
    assert desk.home.live.owned == 2


def test_exactly_nine_tenths_start():
    desk = Desk(pool_tokens=100)
    desk.submit(1, [101] * 60)
    desk.submit(2, [101] * 30)
    assert desk.home.live.owned == 2


def test_output_counts_as_live():
    desk = Desk(pool_tokens=100)
    desk.submit(1, [101] * 60, sampling=limit(40))
    desk.commit(0, 1, 60, *[110] * 10)
    desk.submit(2, [101] * 21)
    assert desk.home.live == Live(1, 1, 70)


def test_a_request_alone_starts_whatever_its_length():
    desk = Desk(pool_tokens=100)
    desk.submit(1, [101] * 99)
    assert desk.home.live.owned == 1


def test_requests_wait_for_a_slot():
    desk = Desk(max_visits=2)
    for uid in (1, 2, 3):
        desk.submit(uid)
    assert desk.home.live.owned == 2
    desk.home.receive(FRONT_END, Abort(2))
    assert desk.home.live.owned == 2
    assert len(desk.home) == 2


def test_other_homes_share_the_pool_and_the_slots():
    desk = Desk(pool_tokens=100, max_visits=4)
    desk.home.hear(1, Live(1, 1, 90))
    desk.submit(1)
    assert desk.home.live.owned == 0
    desk.home.hear(1, Live(1, 4, 10))
    assert desk.home.live.owned == 0
    desk.home.hear(1, Live(0, 0, 0))
    assert desk.home.live.owned == 1


# What the home tells the others


def test_live_counts_requests_that_may_visit_everyone_and_are_not_blocked():
    desk = Desk()
    desk.submit(1)
    desk.submit(2, to=route(0))
    assert desk.home.live == Live(1, 2, 6)
    assert desk.home.live_requests == 1
    desk.home.hear(1, Live(5, 6, 70))
    assert desk.home.live_requests == 6
    desk.home.receive(0, Blocked(1))
    assert desk.home.live == Live(0, 2, 6)
    desk.home.receive(0, Blocked(1))
    assert desk.home.live_requests == 5
    desk.home.receive(0, Admitted(1))
    assert desk.home.live == Live(1, 2, 6)
    desk.home.receive(0, Admitted(2))
    assert desk.home.live_requests == 6, "it may still not visit everyone"


def test_a_blocked_request_that_ends_is_not_counted_off_twice():
    desk = Desk()
    desk.submit(1)
    desk.submit(2)
    desk.home.receive(0, Blocked(1))
    desk.home.receive(FRONT_END, Abort(1))
    assert desk.home.live == Live(1, 1, 3)


# Streaming


def test_streams_get_what_is_new_once_per_turn_and_others_one_answer():
    desk = Desk()
    desk.submit(1, sampling=limit(3))
    desk.submit(2, sampling=limit(3), stream=False)
    assert desk.home.take_outputs() == []
    for uid in (1, 2):
        desk.commit(0, 1, 3, 110, uid=uid)
        desk.commit(0, 1, 4, 111, uid=uid)
    assert [(output.rid, output.tokens) for output in desk.home.take_outputs()] == [
        ("r1", [110, 111])
    ]
    assert desk.home.take_outputs() == []
    for uid in (2, 1):
        desk.commit(0, 1, 5, 112, uid=uid)
    assert [(output.rid, output.tokens) for output in desk.home.take_outputs()] == [
        ("r2", [110, 111, 112]),
        ("r1", [112]),
    ]


def test_a_hand_over_without_tokens_is_not_streamed():
    desk = Desk()
    desk.submit()
    desk.hand_over(0, 1, 3, to=1)
    assert desk.home.take_outputs() == []


@settings(derandomize=True, deadline=None, max_examples=60)
@given(st.integers(0, 10**6), st.integers(2, 4), st.booleans(), st.integers(1, 40))
def test_every_member_always_knows_what_it_needs(seed, members, eager, events):
    """Members that do as they are told, cut tokens and all, agree with the home."""
    rng = random.Random(seed)
    desk = Desk(members, eager)
    desk.submit(to=route(*range(members)), sampling=limit(1000), stream=False)
    known: dict[int, list[int]] = {}
    truth, writers = list(PROMPT), []
    here, epoch, drafts = 0, 0, 0
    for event in range(events):
        for member, message in desk.look():
            if isinstance(message, Open):
                assert member not in known
                known[member] = list(message.prompt)
            else:
                assert isinstance(message, HandOver)
                assert message.start <= len(known[member])
                known[member][message.start :] = message.tokens
                assert message.epoch == epoch + 1
                here, epoch = member, message.epoch
        assert known[here] == truth
        start = len(truth) - rng.choice([0, 0, 0, min(2, drafts)])
        tokens = [rng.randrange(100, 190) for _ in range(rng.choice([0, 1, 1, 3]))]
        before = len(truth)
        truth[start:] = tokens
        writers[start - 3 :] = [here] * len(tokens)
        known[here][start:] = tokens
        drafts = rng.randint(0, len(tokens) + drafts - (before - start))
        if rng.random() < 0.5:
            desk.home.receive(here, Commit(1, epoch, start, tokens, drafts=drafts))
        else:
            to = rng.choice([member for member in range(members) if member != here])
            desk.home.receive(here, HandOver(1, epoch, start, tokens, to, drafts=drafts))
        assert desk.home.live.tokens == len(truth), event
    desk.home.receive(FRONT_END, Abort(1))
    output = desk.output()
    final = len(writers) - drafts
    assert output.tokens == truth[3 : 3 + final]
    assert output.member_tokens == [writers[:final].count(m) for m in range(members)]


def test_the_first_token_of_a_stream_is_the_first_that_stands():
    times = iter([1.0, 2.0, 3.0, 4.0])
    home = Home(
        0,
        make_roster(2, eos_ids=[(199,), (198,)]),
        lambda member, message: None,
        lambda uid: 0,
        lambda ids: "".join(map(chr, ids)),
        clock=lambda: next(times),
    )
    home.receive(FRONT_END, make_submit(1, PROMPT, stream=True, sampling=limit(9, stop=("n",))))
    home.receive(0, Commit(1, 1, 3, [110], drafts=1))  # "n", which ends nothing as a draft
    home.receive(0, HandOver(1, 1, 4, [111], 1, drafts=2))
    assert home.take_outputs() == []
    home.receive(1, HandOver(1, 2, 3, [112], 0))  # both are taken back
    [output] = home.take_outputs()
    assert (output.tokens, output.started, output.first_token) == ([112], 1.0, 2.0)
    home.receive(0, Commit(1, 3, 4, [113, 110, 114], drafts=2))
    home.receive(0, HandOver(1, 3, 7, [115], 1, drafts=3))
    home.receive(1, HandOver(1, 4, 7, [116], 0))  # all stand, and the stop string cuts
    [output] = home.take_outputs()
    assert output.tokens == [113, 110]
    assert output.finish == {"type": "stop", "matched": "n"}
    assert output.first_token == 2.0
