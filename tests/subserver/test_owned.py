"""One request as its home knows it."""

from __future__ import annotations

from typing import Any

from tests.subserver.builders import make_submit, route
from tokenrouter.ipc.messages import Logprob, Sampling
from tokenrouter.subserver.finish import Finish, FinishRule, aborted
from tokenrouter.subserver.owned import Owned

PROMPT = [101, 102, 103, 104, 105, 106, 107]


def owned(limit: int = 9, **options: object) -> Owned:
    sampling = Sampling(limit, skip_special_tokens=False, no_stop_trim=True)
    submit = make_submit(1, PROMPT, to=route(**options), sampling=sampling)
    return Owned(submit, FinishRule(sampling, {199}, lambda ids: ""), members=3)


def write(request: Owned, *arguments: Any) -> Finish | None:
    """Append tokens that are final."""
    request.append(*arguments)
    return request.settle(drafts=0)


def test_nothing_is_appended_past_the_finish():
    request = owned()
    assert write(request, 0, [110, 111]) is None
    assert write(request, 1, [112, 199, 113]) == {"type": "stop", "matched": 199}
    assert request.tokens == [*PROMPT, 110, 111, 112, 199]
    assert request.writers == [0, 0, 1, 1]


def test_logprobs_keep_step_with_tokens():
    sampling = Sampling(9, logprobs=0)
    submit = make_submit(1, PROMPT, sampling=sampling)
    request = Owned(submit, FinishRule(sampling, {199}, lambda ids: ""), members=2)
    a, b, c, d, e = (Logprob(-float(i), []) for i in range(5))
    write(request, 0, [110, 111], [a, b])
    assert request.output(None, 0).logprobs == [a, b]
    request.append(1, [112, 113], [c, d])
    request.cut(len(PROMPT) + 3)
    assert request.logprobs == [a, b, c]
    write(request, 0, [199, 114], [e, a])
    assert request.tokens[len(PROMPT) :] == [110, 111, 112, 199]
    assert request.output(None, 0).logprobs == [c, e]


def test_who_did_not_ask_is_told_no_logprobs():
    request = owned()
    write(request, 0, [110])
    assert request.output(None, 0).logprobs is None


def test_a_full_request_takes_no_token():
    request = owned(limit=0)
    assert write(request, 0, [110]) == {"type": "length", "length": 0}
    assert write(request, 0, []) == {"type": "length", "length": 0}
    assert request.writers == []


def test_a_cut_takes_back_tokens_writers_and_what_members_know():
    request = owned()
    request.known = {0: 11, 1: 8}
    write(request, 0, [110, 111])
    request.append(1, [112, 113])
    request.cut(9)
    assert request.tokens == [*PROMPT, 110, 111]
    assert (request.writers, request.known) == ([0, 0], {0: 9, 1: 8})
    assert request.output(None, 0).member_tokens == [2, 0, 0]
    request.cut(9)
    assert len(request.tokens) == 9


def test_each_output_holds_what_is_new():
    request = owned(token_models=True)
    write(request, 0, [110])
    first = request.output(None, 2)
    assert (first.rid, first.tokens, first.token_models, first.finish) == ("r1", [110], [0], None)
    assert first.context == PROMPT[-5:]
    assert (first.prompt_tokens, first.completion_tokens, first.cached_tokens) == (7, 1, 2)
    assert (first.skip_special_tokens, first.spaces_between_special_tokens) == (False, True)
    assert first.no_stop_trim
    write(request, 2, [111, 112])
    request.hand_overs = 4
    last = request.output(aborted("gone"), 2)
    assert (last.tokens, last.token_models, last.context) == ([111, 112], [2, 2], None)
    assert (last.completion_tokens, last.member_tokens, last.hand_overs) == (3, [1, 0, 2], 4)
    assert last.finish == {"type": "abort", "message": "gone"}
    assert request.output(None, 2).tokens == []


def test_drafts_are_told_to_nobody_and_end_nothing():
    request = owned(token_models=True)
    request.append(0, [110, 199, 112])
    assert request.settle(drafts=3) is None
    assert (request.drafts, request.output(None, 0).tokens) == (3, [])
    assert request.settle(drafts=2) is None
    told = request.output(None, 0)
    assert (told.tokens, told.completion_tokens, told.member_tokens) == ([110], 1, [1, 0, 0])
    request.cut(len(PROMPT) + 1)
    request.append(1, [113])
    assert request.settle(drafts=0) is None
    assert request.output(None, 0).tokens == [113]


def test_a_draft_that_becomes_final_may_end_the_request():
    request = owned()
    request.known = {0: 11, 1: 12}
    request.append(0, [110, 199, 112])
    assert request.settle(drafts=1) == {"type": "stop", "matched": 199}
    assert (request.tokens[len(PROMPT) :], request.writers) == ([110, 199], [0, 0])
    assert request.known == {0: 9, 1: 9}


def test_idle_moves_are_counted_from_the_last_token_that_grew_the_request():
    request = owned()
    for idle, counted in ((True, 1), (False, 1), (True, 2)):
        request.moved(idle)
        assert request.idle_moves == counted
    request.append(0, [110])
    assert request.settle(drafts=1) is None
    request.moved(idle=True)  # with a draft more than ever
    assert request.idle_moves == 0
    request.moved(idle=True)
    assert (request.idle_moves, request.settle(drafts=0)) == (1, None)
    assert request.idle_moves == 0


def test_checked_drafts_get_the_log_probabilities_of_whoever_checked_them():
    sampling = Sampling(9, logprobs=0)
    request = Owned(make_submit(1, PROMPT, sampling=sampling), FinishRule(sampling, (), str), 2)
    a, b, c, d, e = (Logprob(-float(i), []) for i in range(5))
    request.append(0, [110, 111], [a, b])
    request.append(1, [112], [c, d, e])
    assert request.logprobs == [c, d, e]


def test_the_context_waits_for_the_first_token():
    request = owned()
    assert request.output(None, 0).context == PROMPT[-5:]
    write(request, 0, [110])
    assert request.output(None, 0).context == PROMPT[-5:]


def test_writers_are_told_only_when_asked_for():
    request = owned()
    write(request, 0, [110])
    assert request.output(None, 0).token_models is None
