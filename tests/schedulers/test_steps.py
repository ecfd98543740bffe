"""Delimiters, told token by token."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from tokenrouter.errors import ConfigError
from tokenrouter.schedulers.steps import BLANK_LINE, Delimiter


class Words:
    """Tokens are pieces of bytes; remembers how many were decoded at once."""

    def __init__(self, *pieces: str | bytes) -> None:
        self._pieces = [each.encode() if isinstance(each, str) else each for each in pieces]
        self.longest = 0
        self.calls = 0

    def decode(self, ids: Sequence[int]) -> str:
        self.calls += 1
        self.longest = max(self.longest, len(ids))
        return b"".join(self._pieces[each] for each in ids).decode(errors="replace")


def completions(delimiter: str, words: Words, tokens: Sequence[int]) -> list[int]:
    """Positions of the tokens that end a step, steps following each other."""
    found, start = [], 0
    delimiter_of = Delimiter(delimiter)
    for here, token in enumerate(tokens):
        if delimiter_of.completed(words.decode, tokens[:here], start, token):
            found.append(here)
            start = here + 1
    return found


def test_as_a_token_of_its_own():
    words = Words("a", "\n\n")
    assert completions(BLANK_LINE, words, [0, 0, 1, 0, 1]) == [2, 4]


def test_over_two_tokens():
    words = Words("a", "b.\n", "\n", "\nc")
    assert completions(BLANK_LINE, words, [0, 1, 2, 0, 2, 3]) == [2, 5]


def test_in_the_middle_of_a_token():
    words = Words("a", "end.\n\nNext")
    assert completions(BLANK_LINE, words, [0, 1, 0]) == [1]


def test_a_delimiter_belongs_to_one_step():
    """Three line ends: the third begins the next step, and does not end it."""
    words = Words("a", "\n")
    assert completions(BLANK_LINE, words, [0, 1, 1, 1, 0, 1, 1]) == [2, 6]


def test_what_lies_before_the_step_does_not_count():
    words = Words("\n", "a")
    delimiter = Delimiter(BLANK_LINE)
    assert delimiter.completed(words.decode, [1, 0], 0, 0)
    assert not delimiter.completed(words.decode, [1, 0], 2, 0)


def test_over_many_tokens_with_broken_characters_around():
    words = Words("x", *"</think>", "é".encode()[:1], "é".encode()[1:])
    spelled = list(range(1, 9))
    assert completions("</think>", words, [9, 10, *spelled, 9, 10]) == [9]
    assert completions("é", words, [0, 9, 10, 0, 9, 0]) == [2]


def test_only_a_few_tokens_are_decoded():
    words = Words("a", "b", "\n")
    completions(BLANK_LINE, words, [0] * 100 + [2, 2])
    assert words.longest == 3


def test_a_token_that_cannot_complete_it_is_decoded_once():
    words = Words("a", "b", "\n")
    completions(BLANK_LINE, words, [0, 1] * 100)
    assert words.calls == 2


def test_a_space_that_a_vocabulary_drops_at_the_beginning():
    class Stripping(Words):
        def decode(self, ids: Sequence[int]) -> str:
            return super().decode(ids).removeprefix(" ")

    words = Stripping("end", ".", " Next")
    assert completions(". ", words, [0, 1, 2, 0, 2, 1, 2]) == [2, 6]


def test_it_equals_a_search_of_the_whole_text():
    rng = random.Random(5)
    pieces = ["a", "b", "ab", "ba", "aab", "bab", "abab", "c"]
    for _ in range(300):
        words = Words(*pieces)
        delimiter = "".join(rng.choice("ab") for _ in range(rng.randint(1, 4)))
        tokens = [rng.randrange(len(pieces)) for _ in range(30)]
        wanted, text = [], ""
        for here, token in enumerate(tokens):
            text += pieces[token]
            if delimiter in text:
                wanted.append(here)
                text = ""
        assert completions(delimiter, words, tokens) == wanted


@pytest.mark.parametrize("wrong", ["", None, 3])
def test_it_must_be_a_text(wrong: object):
    with pytest.raises(ConfigError, match=r"algorithm_args.think_end: must be a text"):
        Delimiter(wrong, "think_end")
