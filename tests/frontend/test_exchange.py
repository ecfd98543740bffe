"""What one HTTP request keeps beside SGLang's objects."""

from __future__ import annotations

import pytest

from tokenrouter.frontend.exchange import Exchange, Live, held_back
from tokenrouter.ipc.messages import Route, Sampling

ROUTE = Route("random", (0, 1), 0, 0.5, {"a": 1}, seed=4, token_models=True)


@pytest.mark.parametrize(
    ("text", "stops", "length"),
    [
        ("abc", (), 0),
        ("abc", ("xy",), 0),
        ("abx", ("xy",), 1),
        ("ab##", ("###",), 2),
        ("ab##", ("#x", "###"), 2),
        ("aab", ("aabaab",), 3),
        ("abab", ("abac",), 2),
        ("#", ("#",), 0),
        ("", ("##",), 0),
    ],
)
def test_text_that_may_begin_a_stop_string(text: str, stops: tuple[str, ...], length: int) -> None:
    assert held_back(text, stops) == length


def test_samples_of_a_prompt_are_numbered() -> None:
    exchange = Exchange(ROUTE, "prompt", "max_tokens")
    sent = [exchange.next_route(8, 3) for _ in range(6)]
    assert [route.sample for route, _ in sent] == [0, 1, 2, 0, 1, 2]
    assert [choice for _, choice in sent] == [0, 1, 2, 3, 4, 5]


def test_prompts_of_a_batch_are_each_the_first_sample() -> None:
    exchange = Exchange(ROUTE, "prompt", "max_tokens")
    assert [exchange.next_route(8, 1) for _ in range(3)] == [(ROUTE, i) for i in range(3)]


def test_a_request_for_no_token_stays_at_home_and_is_no_sample() -> None:
    exchange = Exchange(ROUTE, "prompt", "max_tokens")
    prefix, choice = exchange.next_route(0, 2)
    assert choice is None
    assert (prefix.algorithm, prefix.members, prefix.home) == ("single", (0,), 0)
    assert exchange.next_route(8, 2)[0].sample == 0


def live(stream: bool, stops: tuple[str, ...] = ()) -> Live:
    return Live(Exchange(ROUTE, "prompt", "n"), "rid", [5], Sampling(8, stop=stops), ROUTE, stream)


def test_a_stream_gives_each_id_once_and_all_text() -> None:
    request = live(stream=True)
    request.tokens += [1, 2]
    request.text = "ab"
    assert request.take(("a", "b"), "v")["output_ids"] == [1, 2]
    request.tokens += [3]
    request.tokens += [4]
    request.text = "abcd"
    answer = request.take(("a", "b"), "v")
    assert (answer["text"], answer["output_ids"]) == ("abcd", [3, 4])
    assert answer["meta_info"]["completion_tokens"] == 4


def test_a_possible_stop_string_is_shown_once_it_is_none() -> None:
    request = live(stream=True, stops=("##",))
    request.text = "ab#"
    assert request.take(("a", "b"), "v")["text"] == "ab"
    request.end({"type": "length", "length": 3})
    assert request.take(("a", "b"), "v")["text"] == "ab#"


def test_the_client_sees_its_own_ids() -> None:
    def answer(**more: int) -> dict[str, object]:
        return {**live(stream=False).take(("a", "b"), "v"), **more}

    one = Exchange(ROUTE, "prompt", "max_tokens", "mine")
    assert one.label(answer())["meta_info"]["id"] == "mine"
    many = Exchange(ROUTE, "prompt", "max_tokens", ["x", "y"])
    assert [each["meta_info"]["id"] for each in many.label([answer(), answer()])] == ["x", "y"]
    assert many.label(answer(index=1))["meta_info"]["id"] == "y"
    assert sorted(many.reports) == [0, 1]
    nobody = Exchange(ROUTE, "prompt", "max_tokens")
    assert nobody.label(answer())["meta_info"]["id"] == "rid"
