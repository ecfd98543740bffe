"""R2R's rolling rule."""

from __future__ import annotations

import math
import random

import pytest

from tests.schedulers.scripted import LARGE, SMALL, rows, writers
from tests.schedulers.served import Served
from tokenrouter.errors import ConfigError
from tokenrouter.schedulers.rolling import RollingRouting
from tokenrouter.schedulers.signals import Aleatoric, Entropy

PAIR = ["small", "large"]


def test_defaults():
    scheduler = RollingRouting(PAIR)
    assert (scheduler.tau, scheduler.window) == (2.275, 3)
    assert set(scheduler.signals(SMALL)) == {Aleatoric(), Entropy()}
    assert list(scheduler.signals(LARGE)) == []


def test_by_hand():
    # Position 1 as after a large token. 3: 3.0 is high, but certain. 4: asks. Then the means
    # 3.0, 1.9 with the trigger.
    script = rows(aleatoric=[1.0, 1.0, 3.0, 3.0, 3.0, -0.3], entropy=[1, 1, 0.0199, 0.02, 0, 0])
    assert writers(RollingRouting(PAIR), script) == [0, 0, 0, 1, 1, 0]
    assert writers(RollingRouting(PAIR, 1.8), script) == [0, 0, 0, 1, 1, 1]


def test_what_is_no_number_goes_to_the_large_model():
    script = rows(aleatoric=[1.0, math.nan, 1.0], entropy=[1.0, math.nan, 1.0])
    assert writers(RollingRouting(PAIR), script) == [0, 1, 1]


@pytest.mark.parametrize("window", [1, 2, 3, 7])
def test_it_equals_the_rule_written_down(window: int):
    rng = random.Random(3)
    script = [(rng.uniform(1.8, 2.6), rng.choice([0.01, 0.5])) for _ in range(2000)]
    wanted: list[int] = []
    begun = 0  # where the window begins
    for here, (uncertainty, entropy) in enumerate(script):
        if not wanted or wanted[-1] == LARGE:
            values = [each for each, _ in script[max(begun, here + 1 - window) : here + 1]]
            wanted.append(int(sum(values) / len(values) >= 2.275))
        else:
            wanted.append(int(uncertainty >= 2.275 and entropy >= 0.02))
            begun = here if wanted[-1] else begun
    made = rows(aleatoric=[au for au, _ in script], entropy=[h for _, h in script])
    assert writers(RollingRouting(PAIR, window=window), made) == wanted
    assert min(wanted.count(0), wanted.count(1)) > 100


@pytest.mark.parametrize("window", [0, 1.5, "3", True])
def test_a_window_holds_whole_positions(window: object):
    with pytest.raises(ConfigError, match=r"algorithm_args.window: must be a whole number of at"):
        RollingRouting(PAIR, window=window)


SERVED = Served(
    "rolling",
    [(1.6, {}), (1.3, {"window": 1}), (1.5, {"window": 5}), (1.6, {"verify": {"epsilon": 0.3}})],
)
