"""Incremental decoding: whatever the pieces, the text is that of the whole."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.frontend.fakes import END_ID, TOKENIZER
from tokenrouter.frontend.detokenizer import Decoder
from tokenrouter.ipc.messages import SUPERVISOR, Logprob, Output, Text
from tokenrouter.ipc.supervision import Down

STOP = {"type": "stop", "matched": END_ID}
LENGTH = {"type": "length", "length": 8}
CONTEXT = list("é🙂".encode())


def output(
    rid: str,
    tokens: Sequence[int],
    finish: dict[str, Any] | None = None,
    context: list[int] | None = None,
    **more: Any,
) -> Output:
    fields: dict[str, Any] = {
        "prompt_tokens": 6,
        "completion_tokens": len(tokens),
        "cached_tokens": 1,
        "member_tokens": [len(tokens), 0],
        "hand_overs": 0,
        "token_models": None,
        "skip_special_tokens": True,
        "spaces_between_special_tokens": True,
        "no_stop_trim": False,
    }
    return Output(rid, list(tokens), context, finish, **{**fields, **more})


class Reader:
    """What the tokenizer manager makes of decoded batches."""

    def __init__(self) -> None:
        self.decoder = Decoder(TOKENIZER)
        self.text: dict[str, str] = {}
        self.ids: dict[str, list[int]] = {}

    def feed(self, *outputs: Output) -> list[Text]:
        texts = self.decoder.decode(outputs)
        for new in texts:
            text = self.text.get(new.rid, "") + new.text
            self.text[new.rid] = text[: new.text_length]
            self.ids.setdefault(new.rid, []).extend(new.tokens)
        return texts


def pieces(ids: list[int], sizes: list[int]) -> list[list[int]]:
    parts, start = [], 0
    for size in [*sizes, len(ids)]:
        parts.append(ids[start : start + size])
        start += size
    return parts


@settings(max_examples=60, deadline=None)
@given(
    text=st.text(max_size=30),
    sizes=st.lists(st.integers(0, 4), max_size=40),
    context=st.sampled_from([[], CONTEXT, CONTEXT[:-1]]),
)
def test_text_in_pieces_is_the_text(text: str, sizes: list[int], context: list[int]) -> None:
    reader = Reader()
    ids = [*text.encode(), END_ID]
    *parts, last = pieces(ids, sizes)
    first: list[int] | None = context
    for part in parts:
        reader.feed(output("a", part, context=first))
        assert text.startswith(reader.text["a"]) or context == CONTEXT[:-1]
        first = None
    reader.feed(output("a", last, STOP, context=first))
    assert reader.ids["a"] == ids
    if context != CONTEXT[:-1]:
        assert reader.text["a"] == text


def test_half_a_character_is_not_shown() -> None:
    reader = Reader()
    emoji = list("🙂".encode())
    shown = []
    for position, token in enumerate([ord("a"), *emoji, ord("b")]):
        reader.feed(output("a", [token], context=[] if position == 0 else None))
        shown.append(reader.text["a"])
    assert shown == ["a", "a", "a", "a", "a🙂", "a🙂b"]


def test_several_outputs_of_one_request_at_once() -> None:
    reader = Reader()
    parts = [list("é".encode()), list("🙂".encode())[:2], list("🙂".encode())[2:], [END_ID]]
    outputs = [
        output("a", part, STOP if i == 3 else None, [] if i == 0 else None, token_models=[i])
        for i, part in enumerate(parts)
    ]
    texts = reader.feed(*outputs, output("b", b"x", context=[]))
    assert reader.text == {"a": "é🙂", "b": "x"}
    assert reader.ids["a"] == [*"é🙂".encode(), END_ID]
    assert [text.token_models for text in texts] == [[0, 1, 2, 3], None]


def test_options_are_those_of_each_request() -> None:
    reader = Reader()
    mark = TOKENIZER.convert_tokens_to_ids("<|user|>")
    reader.feed(
        output("a", [65, mark], LENGTH, []),
        output("b", [66, mark], LENGTH, [], skip_special_tokens=False),
        output("c", [67, mark], LENGTH, []),
    )
    assert reader.text == {"a": "A", "b": "B<|user|>", "c": "C"}


@pytest.mark.parametrize(
    ("no_stop_trim", "text"), [(False, "ab"), (True, "ab##")], ids=["trimmed", "kept"]
)
def test_a_stop_string_that_was_partly_sent(no_stop_trim: bool, text: str) -> None:
    reader = Reader()
    reader.feed(output("a", b"ab#", context=[], no_stop_trim=no_stop_trim))
    assert reader.text["a"] == "ab#"
    finish = {"type": "stop", "matched": "##"}
    reader.feed(output("a", b"#", finish, no_stop_trim=no_stop_trim))
    assert reader.text["a"] == text
    assert reader.ids["a"] == list(b"ab##")


@pytest.mark.parametrize("end", [END_ID, 0])
def test_a_stop_token_is_an_id_but_no_text(end: int) -> None:
    reader = Reader()
    reader.feed(output("a", [97, end], {"type": "stop", "matched": end}, []))
    assert (reader.text["a"], reader.ids["a"]) == ("a", [97, end])


def test_the_context_is_neither_text_nor_id_however_often_it_comes() -> None:
    reader = Reader()
    reader.feed(output("a", [], context=CONTEXT))
    reader.feed(output("a", [97], LENGTH, context=CONTEXT))
    assert (reader.text["a"], reader.ids["a"]) == ("a", [97])


def test_logprobs_pass_through_and_are_joined() -> None:
    reader = Reader()
    a, b, c = (Logprob(-0.5 * i, [(i, -0.5 * i)]) for i in range(3))
    parts = output("a", b"a", context=[], logprobs=[a]), output("a", b"bc", logprobs=[b, c])
    texts = reader.feed(*parts, output("b", b"x", context=[]))
    assert [text.logprobs for text in texts] == [[a, b, c], None]


def test_finished_requests_are_forgotten_and_late_outputs_dropped() -> None:
    reader = Reader()
    reader.feed(output("a", b"ab", context=[]), output("b", b"x", LENGTH, []))
    assert list(reader.decoder.decode_status) == ["a"]
    reader.feed(output("a", [], {"type": "abort", "message": "gone"}))
    assert not reader.decoder.decode_status
    assert reader.feed(output("a", b"c")) == []


def test_what_a_dead_home_had_begun_is_forgotten() -> None:
    decoder = Decoder(TOKENIZER)
    decoder.hear([(0, output("a", b"x", None, [])), (1, output("b", b"y", None, []))])
    decoder.hear([(SUPERVISOR, Down(0))])
    assert set(decoder.decode_status) == {"b"}
    late = [(0, output("a", b"z", None, None)), (1, output("b", b"z", LENGTH, None))]
    texts = decoder.hear(late)
    assert [text.rid for text in texts if isinstance(text, Text)] == ["b"]
    assert not decoder.decode_status
    assert not decoder._homes
