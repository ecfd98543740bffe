import re
from typing import Any

import numpy
import pytest

from tokenrouter.errors import ConfigError
from tokenrouter.throughput_model.parameters import Latency, Model, System
from tokenrouter.throughput_model.systems import r2r, speculative

SMALL, LARGE = Model("small", Latency(6.0)), Model("large", Latency(27.9), 8)
ROUTING = [[0.65, 0.35], [1.0, 0.0]]
COMMITTED = [[1, 0], [1, 1]]


def refused(problem: str) -> Any:
    return pytest.raises(ConfigError, match=f"^{re.escape(problem)}$")


def test_a_latency_grows_with_requests_and_tokens() -> None:
    assert Latency(5.0, 0.5, 0.25).at(4, 10) == pytest.approx(5.0 + 2.0 + 2.5)


def test_a_table_is_linear_between_its_sizes_and_constant_outside() -> None:
    law = Latency(table={8: 9.0, 2: 6.0}, per_token=1.0)
    assert [law.at(size, 0) for size in (1, 2, 4, 8, 99)] == [6.0, 6.0, 7.0, 9.0, 9.0]
    assert law.at(2, 3) == 9.0


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"base": -1.0}, "times must be finite and not negative, got "),
        ({"base": float("nan")}, "times must be finite and not negative, got "),
        ({"table": {1: float("inf")}}, "times must be finite and not negative, got "),
        ({"table": {0: 3.0, 2: 4.0}}, "batch sizes start at 1, got [0, 2]"),
        ({"table": {1: 3.0}, "base": 1.0}, "give a table, or base and per_request, not both"),
        ({}, "a step must take more than 0 ms, at every batch size"),
        ({"table": {1: 3.0, 4: 0.0}}, "a step must take more than 0 ms, at every batch size"),
    ],
)
def test_a_wrong_latency_is_refused(arguments: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError, match=f"^latency_ms: {re.escape(problem)}"):
        Latency(**arguments)


def test_a_batch_holds_at_least_one_request() -> None:
    with refused("models.a.max_batch: must be at least 1"):
        Model("a", Latency(1.0), 0)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"models": ()}, "models: there must be at least one"),
        (
            {"routing": [[1.0]]},
            "routing: must have a row and a column for each of the 2 models, has shape (1, 1)",
        ),
        (
            {"committed": [[1, 1]]},
            "committed: must have a row and a column for each of the 2 models, has shape (1, 2)",
        ),
        ({"routing": [[1.2, -0.2], [1, 0]]}, "routing: numbers must be finite and not negative"),
        (
            {"committed": [[1, float("nan")], [1, 1]]},
            "committed: numbers must be finite and not negative",
        ),
        (
            {"routing": [[0.65, 0.3], [1, 0]]},
            "routing: the row of small adds up to 0.95; it must be 1",
        ),
        (
            {"routing": [[1, 0], [1, 0]]},
            "routing: no request ever reaches large; leave it out, or route to it",
        ),
        (
            {"routing": [[0.5, 0.5], [0, 1]]},
            "routing: no request that reached large comes back to small; it absorbs all of them",
        ),
        ({"committed": numpy.zeros((2, 2))}, "committed: no step that happens commits a token"),
        (
            {"committed": [[0, 0], [0, 1]]},
            "committed: no step that happens commits a token",
        ),
        ({"tick_ms": 0.0}, "tick_ms: must be more than 0, got 0.0"),
        ({"tick_ms": float("inf")}, "tick_ms: must be more than 0, got inf"),
    ],
)
def test_a_wrong_system_is_refused(arguments: dict[str, Any], problem: str) -> None:
    right = {"models": (SMALL, LARGE), "routing": ROUTING, "committed": COMMITTED}
    System(**right)
    with refused(problem):
        System(**{**right, **arguments})


@pytest.mark.parametrize(
    ("concurrency", "thresholds", "problem"),
    [
        (0, (1, 1), "concurrency: must be at least 1, got 0"),
        (4, (1,), "thresholds: [1] must be 2 numbers, one a model, from 1 on"),
        (4, (1, 0), "thresholds: [1, 0] must be 2 numbers, one a model, from 1 on"),
        (
            20,
            (1, 9),
            "thresholds: 9 requests never wait for large, whose batch takes 8 of 20; lower it",
        ),
        (
            4,
            (5, 1),
            "thresholds: 5 requests never wait for small, whose batch takes 4 of 4; lower it",
        ),
        (
            4,
            (3, 3),
            "thresholds: [3, 3] can deadlock 4 requests: the sum of all theta - 1 must be below "
            "their number; lower some",
        ),
    ],
)
def test_illegal_thresholds_are_refused(
    concurrency: int, thresholds: tuple[int, ...], problem: str
) -> None:
    system = System((SMALL, LARGE), ROUTING, COMMITTED)
    with refused(problem):
        system.check(concurrency, thresholds)


def test_the_largest_thresholds_that_cannot_deadlock_are_legal() -> None:
    assert System((SMALL, LARGE), ROUTING, COMMITTED).check(4, [3, 2]) == (3, 2)


def test_matrices_cannot_be_changed_afterwards() -> None:
    system = System((SMALL, LARGE), ROUTING, COMMITTED)
    with pytest.raises(ValueError, match="read-only"):
        system.routing[0, 0] = 1.0


def test_visits_are_shared_as_the_routing_says() -> None:
    system = r2r((SMALL, LARGE), 0.35)
    assert system.visit_shares == pytest.approx([1 / 1.35, 0.35 / 1.35])
    assert system.visits_per_token == pytest.approx([1.0, 0.35])
    ring = System((SMALL, LARGE), [[0, 1], [1, 0]], [[0, 2], [3, 0]])
    assert ring.visit_shares == pytest.approx([0.5, 0.5])
    assert ring.visits_per_token == pytest.approx([0.2, 0.2])


def test_a_step_feeds_what_others_wrote_meanwhile() -> None:
    """A large model that writes 1 token in 4 is fed 4 of them at each visit."""
    large = Model("large", Latency(20.0, 1.0, 0.5), 2)
    assert r2r((SMALL, large), 0.25).latencies(1, 4) == pytest.approx([23.0, 26.0])


def test_a_step_feeds_at_least_one_token() -> None:
    """Drafts of 4 of which a check commits 1: more visits than tokens."""
    draft = Model("draft", Latency(1.0, 0.0, 0.5))
    system = speculative((draft, LARGE), acceptance=0.0, draft_length=4)
    assert system.visits_per_token[0] == pytest.approx(4.0)
    assert system.latencies(0, 2) == pytest.approx([1.5, 2.0])
