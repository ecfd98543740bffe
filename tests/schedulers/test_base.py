"""What an algorithm sees of a request, and what it gets for nothing."""

from __future__ import annotations

import hashlib
import itertools
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenrouter.errors import ConfigError
from tokenrouter.schedulers.base import Decision, Request, RoutingScheduler, Step
from tokenrouter.schedulers.signals import Entropy, TopLogits, TopProbability


def documented(prompt: list[int], seed: int, sample: int, position: int, stream: int) -> float:
    """The draw, as its documentation says: 53 bits of BLAKE2b, little end first."""
    prefix = hashlib.blake2b(b"".join(struct.pack("<q", i) for i in prompt), digest_size=16)
    key = b"".join(value.to_bytes(8, "little", signed=True) for value in
                   (seed, sample, position, stream))  # fmt: skip
    digest = hashlib.blake2b(prefix.digest() + key, digest_size=8).digest()
    return (int.from_bytes(digest, "little") >> 11) / (1 << 53)


def request(prompt: list[int], output: list[int] = [], **options: int) -> Request:  # noqa: B006
    return Request([*prompt, *output], len(prompt), options.pop("member", 0), **options)


@settings(derandomize=True, deadline=None, max_examples=50)
@given(
    st.lists(st.integers(0, 2**31), min_size=1, max_size=20),
    st.lists(st.integers(0, 2**31), max_size=20),
    st.integers(-(2**63), 2**63 - 1),
    st.integers(0, 1000),
    st.integers(0, 5),
)
def test_a_draw_is_the_documented_function(prompt, output, seed, sample, stream):
    drawn = request(prompt, output, seed=seed, sample=sample).draw(stream)
    assert drawn == documented(prompt, seed, sample, len(output), stream)
    assert 0.0 <= drawn < 1.0


def test_draws_that_must_never_change():
    """Written down once: results published with one version are those of the next."""
    draws = [request([1, 2, 3], [0] * position, seed=42).draw() for position in range(4)]
    assert draws == FIXED
    assert request([], seed=0).draw() == FIXED_EMPTY


FIXED = [0.4159239951556447, 0.26174945800438454, 0.9514056697148827, 0.41362262200989675]
FIXED_EMPTY = 0.735553635785768


def test_a_draw_does_not_depend_on_the_member_the_output_or_its_order():
    first = request([5, 6], [7, 8], member=0, seed=1)
    second = request([5, 6], [9, 9], member=3, seed=1)
    second.draw(1)
    second.draw(2)
    assert first.draw() == second.draw() == first.draw()


def test_everything_else_changes_a_draw():
    draws = {
        request([5, 6], [7]).draw(),
        request([5, 6], [7], seed=1).draw(),
        request([5, 6], [7], sample=1).draw(),
        request([5, 6], [7, 7]).draw(),
        request([6, 5], [7]).draw(),
        request([5, 6], [7]).draw(stream=1),
    }
    assert len(draws) == 6


def test_the_position_follows_the_tokens():
    tokens = [1, 2, 3]
    seen = Request(tokens, 3, 0)
    assert seen.position == 0
    tokens += [4, 5]
    assert seen.position == 2
    assert seen.draw() == documented([1, 2, 3], 0, 0, 2, 0)


def test_draws_are_uniform_and_independent_of_neighbours():
    draws = [request([1], [0] * n).draw() for n in range(4000)]
    assert sum(draws) / 4000 == pytest.approx(0.5, abs=0.02)
    for low in range(10):
        assert sum(low / 10 <= u < (low + 1) / 10 for u in draws) == pytest.approx(400, abs=80)
    pairs = [(a - 0.5) * (b - 0.5) for a, b in itertools.pairwise(draws)]
    assert sum(pairs) / len(pairs) == pytest.approx(0.0, abs=0.006)


class Pair(RoutingScheduler):
    members_needed = 2
    threshold_range = (0.0, 1.0)


def test_the_defaults_of_the_hooks():
    scheduler = RoutingScheduler(["a"])
    seen = request([1])
    assert list(scheduler.signals(0)) == []
    assert scheduler.start(seen) is None
    assert scheduler.send(seen, Step((1,), {}), Decision(1, 0)) == b""
    scheduler.receive(seen, b"anything")
    assert seen.state is None
    assert scheduler.members == ("a",)
    with pytest.raises(NotImplementedError, match="RoutingScheduler must define route"):
        scheduler.route(seen, Step((1,), {}))


def test_the_wrong_number_of_members_is_refused_with_their_names():
    assert Pair(["a", "b"], 0.5).router_threshold == 0.5
    with pytest.raises(ConfigError, match=r"Pair routes between 2 models, and 3 .*\(a, b, c\)"):
        Pair(["a", "b", "c"])
    RoutingScheduler(["a", "b", "c"])


@pytest.mark.parametrize("threshold", [-0.1, 1.1, float("nan"), float("inf")])
def test_a_threshold_out_of_range_is_refused(threshold: float):
    with pytest.raises(ConfigError, match="Pair takes router thresholds from 0 to 1"):
        Pair(["a", "b"], threshold)


def test_signals_have_names_of_their_own():
    signals = [Entropy(), TopProbability(), TopLogits(3), TopLogits(20)]
    assert [signal.name for signal in signals] == [
        "entropy",
        "top_probability",
        "top_logits_3",
        "top_logits_20",
    ]
    assert Entropy() == Entropy() and TopLogits(3) != TopLogits(4)
