"""Where a request ends."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.subserver.reference import ending
from tokenrouter.ipc.messages import Grammar, Sampling
from tokenrouter.subserver.finish import FinishRule, aborted

EOS = (198, 199)


def text_of(ids: Sequence[int]) -> str:
    return "".join(map(chr, ids))


def run(output: Sequence[int], sampling: Sampling, prompt: Sequence[int] = (100, 101)):
    """(tokens written, finish) of a request that would write ``output``."""
    rule = FinishRule(sampling, EOS, text_of)
    tokens = list(prompt)
    if finish := rule.full(0):
        return [], finish
    for token in output:
        tokens.append(token)
        if finish := rule.after(tokens, len(prompt), len(tokens)):
            return tokens[len(prompt) :], finish
    return tokens[len(prompt) :], None


def test_length():
    assert run([110, 111, 112], Sampling(2)) == ([110, 111], {"type": "length", "length": 2})
    assert run([110], Sampling(2)) == ([110], None)


def test_no_token_at_all_may_be_wanted():
    assert run([110], Sampling(0)) == ([], {"type": "length", "length": 0})


@pytest.mark.parametrize("eos", EOS)
def test_the_end_of_sequence_of_every_member_ends_it(eos: int):
    assert run([110, eos, 111], Sampling(9)) == ([110, eos], {"type": "stop", "matched": eos})


def test_stop_ids():
    sampling = Sampling(9, stop_token_ids=(111,))
    assert run([110, 111, 112], sampling) == ([110, 111], {"type": "stop", "matched": 111})


def test_ignore_eos_ignores_stop_ids_too_as_sglang_does():
    sampling = Sampling(3, stop_token_ids=(111,), ignore_eos=True)
    assert run([199, 111, 198], sampling)[1] == {"type": "length", "length": 3}


def test_the_end_of_a_grammar_ends_the_request_even_so():
    sampling = Sampling(9, stop_token_ids=(111,), ignore_eos=True, grammar=Grammar("regex", "any"))
    assert run([110, 111, 199, 112], sampling) == (
        [110, 111, 199],
        {"type": "stop", "matched": 199},
    )


def test_a_stop_string_over_several_tokens():
    sampling = Sampling(9, stop=(text_of([111, 112]),))
    assert run([112, 111, 111, 112, 113], sampling) == (
        [112, 111, 111, 112],
        {"type": "stop", "matched": text_of([111, 112])},
    )


def test_a_stop_string_is_not_looked_for_in_the_prompt():
    sampling = Sampling(9, stop=(text_of([101, 110]),))
    assert run([110, 111], sampling, prompt=[100, 101])[1] is None


def test_a_stop_string_inside_one_token():
    rule = FinishRule(
        Sampling(9, stop=("lo wo",)), (), lambda ids: "".join("hello world " for _ in ids)
    )
    assert rule.after([1, 7], 1, 2) == {"type": "stop", "matched": "lo wo"}


def test_a_stop_string_over_tokens_without_text_of_their_own():
    # Bytes of one character in several tokens: only the last of them shows text.
    text = {(5,): "", (5, 6): "", (5, 6, 7): "\u20ac"}
    rule = FinishRule(Sampling(9, stop=("\u20ac",)), (), lambda ids: text.get(tuple(ids), ""))
    assert rule.after([1, 5], 1, 2) is None
    assert rule.after([1, 5, 6], 1, 3) is None
    assert rule.after([1, 5, 6, 7], 1, 4) == {"type": "stop", "matched": "\u20ac"}


def test_the_first_stop_string_that_occurs_is_named():
    sampling = Sampling(9, stop=("never", text_of([111]), text_of([110, 111])))
    assert run([110, 111], sampling)[1] == {"type": "stop", "matched": text_of([111])}


def test_length_wins_over_eos_and_eos_over_strings():
    assert run([199], Sampling(1))[1] == {"type": "length", "length": 1}
    assert run([199], Sampling(2, stop=(text_of([199]),)))[1] == {"type": "stop", "matched": 199}


@settings(derandomize=True, deadline=None)
@given(
    st.lists(st.integers(195, 199), max_size=12),
    st.integers(0, 12),
    st.booleans(),
    st.lists(st.text([chr(i) for i in range(195, 200)], min_size=1, max_size=4), max_size=3),
    st.sets(st.integers(195, 199), max_size=1),
)
def test_it_cuts_where_a_look_at_the_whole_output_does(output, limit, ignore, stops, ids):
    sampling = Sampling(limit, stop=tuple(stops), stop_token_ids=tuple(ids), ignore_eos=ignore)
    for cut in range(len(output) + 1):
        if finish := ending(output[:cut], sampling, EOS):
            assert run(output, sampling) == (output[:cut], finish)
            return
    assert run(output, sampling) == (output, None)


def test_aborted():
    assert aborted("gone") == {"type": "abort", "message": "gone"}
    assert aborted("broken", 500) == {
        "type": "abort",
        "message": "broken",
        "status_code": 500,
        "err_type": "InternalServerError",
    }
    assert aborted("busy", 503)["err_type"] == "ServiceUnavailable"
    assert aborted("no", 400, "regex")["field"] == "regex"
