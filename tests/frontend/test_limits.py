"""What fits the members of a route."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.frontend.fakes import NAMES, make_config, make_roster
from tokenrouter.errors import RequestError
from tokenrouter.frontend.limits import Limits
from tokenrouter.frontend.names import resolve

CONFIG = make_config(Path("model"))
BOTH = resolve("demo", None, CONFIG)
SMALL = resolve("demo/small", None, CONFIG)


def limits(**changes: int) -> Limits:
    return Limits(make_roster(**changes), NAMES)


def test_the_tightest_member_of_the_route_decides() -> None:
    assert limits().room(BOTH, 12, "prompt") == 500
    assert limits().room(SMALL, 24, "prompt") == 1000
    assert limits(pool_tokens=100).room(BOTH, 99, "prompt") == 1


def test_a_prompt_without_room_for_a_token_names_who_is_too_small() -> None:
    with pytest.raises(RequestError, match=r"512 .*context length of 'large'") as caught:
        limits().room(BOTH, 512, "prompt")
    assert caught.value.field == "prompt"
    with pytest.raises(RequestError, match=r"100 .*KV pool of 'large'"):
        limits(pool_tokens=100).room(BOTH, 100, "prompt")


def test_length_up_to_the_last_token() -> None:
    limits().check_length(BOTH, 12, 500, "max_tokens")
    with pytest.raises(RequestError, match="at most 500") as caught:
        limits().check_length(BOTH, 12, 501, "max_tokens")
    assert caught.value.field == "max_tokens"


@pytest.mark.parametrize("prompt", [[-1, 5], [5, 300], [2**40]])
def test_ids_outside_the_smallest_vocabulary(prompt: list[int]) -> None:
    with pytest.raises(RequestError, match="0 to 299") as caught:
        limits(vocab_size=300).check_prompt(BOTH, prompt, "input_ids")
    assert caught.value.field == "input_ids"


def test_legal_prompts() -> None:
    limits(vocab_size=300).check_prompt(BOTH, [0, 299], "input_ids")
    limits(vocab_size=300).check_prompt(SMALL, [319], "input_ids")


def test_an_empty_prompt() -> None:
    with pytest.raises(RequestError, match="empty"):
        limits().check_prompt(BOTH, [], "prompt")
