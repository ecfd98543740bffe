"""R2R's duo_rolling rule."""

from __future__ import annotations

import math
import random

import pytest

from tests.schedulers.scripted import LARGE, SMALL, rows, writers
from tests.schedulers.served import Served
from tokenrouter.errors import ConfigError
from tokenrouter.schedulers.duo_rolling import DuoRolling
from tokenrouter.schedulers.signals import Aleatoric

PAIR = ["small", "large"]


def test_defaults():
    scheduler = DuoRolling(PAIR)
    assert (scheduler.tau, scheduler.window) == (2.275, 3)
    assert list(scheduler.signals(SMALL)) == [Aleatoric()]
    assert list(scheduler.signals(LARGE)) == []


def test_by_hand():
    # 1: as after a large token. 2 asks and is not in the window, so that 3 ends the run.
    # 4 asks again, and 5 to 7 have the means 3.0, 2.5, 1.9.
    script = rows(aleatoric=[1.0, 9.0, 1.0, 2.275, 3.0, 2.0, 0.7])
    assert writers(DuoRolling(PAIR), script) == [0, 1, 0, 1, 1, 1, 0]


def test_what_is_no_number_goes_to_the_large_model():
    assert writers(DuoRolling(PAIR), rows(aleatoric=[1.0, math.nan, 1.0])) == [0, 1, 0]


@pytest.mark.parametrize("window", [1, 2, 3, 7])
def test_it_equals_the_rule_written_down(window: int):
    rng = random.Random(4)
    script = [rng.uniform(1.8, 2.6) for _ in range(2000)]
    wanted: list[int] = []
    begun = 0
    for here, uncertainty in enumerate(script):
        if not wanted or wanted[-1] == LARGE:
            values = script[max(begun, here + 1 - window) : here + 1]
            wanted.append(int(sum(values) / len(values) >= 2.275))
        else:
            wanted.append(int(uncertainty >= 2.275))
            begun = here + 1 if wanted[-1] else begun
    assert writers(DuoRolling(PAIR, window=window), rows(aleatoric=script)) == wanted
    assert min(wanted.count(0), wanted.count(1)) > 100


def test_a_window_holds_whole_positions():
    with pytest.raises(ConfigError, match=r"algorithm_args\.window"):
        DuoRolling(PAIR, window=0)


SERVED = Served(
    "duo_rolling",
    [(1.6, {}), (1.3, {"window": 1}), (1.5, {"window": 5}), (1.6, {"verify": {"epsilon": 0.3}})],
)
