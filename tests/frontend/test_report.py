"""How routing is reported."""

from __future__ import annotations

from tokenrouter.frontend.report import merge, report
from tokenrouter.ipc.messages import Route

NAMES = ("small", "large")


def test_one_request() -> None:
    route = Route("entropy", (0, 1), 0, 0.45, token_models=True)
    assert report(route, NAMES, [1, 3], 2, [0, 1, 1, 1]) == {
        "routing": {
            "algorithm": "entropy",
            "router_threshold": 0.45,
            "tokens": {"small": 1, "large": 3},
            "hand_overs": 2,
            "token_models": ["small", "large", "large", "large"],
        },
        "llm_ratio": 0.75,
    }


def test_the_name_of_an_algorithm_that_was_asked_for() -> None:
    route = Route("entropy", (0, 1), 0, 0.45, preset="careful")
    routing = report(route, NAMES, [1, 3], 2, [])["routing"]
    assert (routing["preset"], routing["algorithm"]) == ("careful", "entropy")


def test_a_member_alone_and_no_token_yet() -> None:
    alone = Route("single", (1,), 1)
    routing = {"algorithm": "single", "router_threshold": None, "hand_overs": 0}
    assert report(alone, NAMES, [0, 2], 0, []) == {
        "routing": {**routing, "tokens": {"large": 2}},
        "llm_ratio": 1.0,
    }
    assert report(alone, NAMES, (), 0, [])["llm_ratio"] == 0.0


def test_several_choices_are_summed() -> None:
    route = Route("random", (0, 1), 0, token_models=True)
    parts = [report(route, NAMES, [1, 1], 2, [0, 1]), report(route, NAMES, [2, 0], 0, [0, 0])]
    merged = merge(parts, "small")
    assert merged["llm_ratio"] == 0.25
    assert merged["routing"]["tokens"] == {"small": 3, "large": 1}
    assert merged["routing"]["hand_overs"] == 2
    assert merged["routing"]["token_models"] == [["small", "large"], ["small", "small"]]
    assert parts[0]["routing"]["token_models"] == ["small", "large"]
