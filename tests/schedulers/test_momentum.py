"""R2R's momentum rule."""

from __future__ import annotations

import math
import random

from tests.schedulers.scripted import LARGE, SMALL, rows, writers
from tests.schedulers.served import Served
from tokenrouter.schedulers.momentum import MomentumRouting
from tokenrouter.schedulers.signals import Aleatoric

PAIR = ["small", "large"]
SURE, UNSURE = 1.0, 3.0


def test_only_the_small_model_computes_the_signal():
    scheduler = MomentumRouting(PAIR)
    assert list(scheduler.signals(SMALL)) == [Aleatoric()]
    assert list(scheduler.signals(LARGE)) == []


def test_it_begins_with_three_tokens_of_the_large_model():
    # m: 0.3, 0.51, 0.657, 0.7599
    assert writers(MomentumRouting(PAIR), rows(aleatoric=[SURE] * 5)) == [1, 1, 1, 0, 0]


def test_after_a_small_token_it_takes_more_to_ask():
    # 0.7599, then 0.532, 0.372, 0.261: asks; 0.483, 0.638, 0.746: enough to return.
    script = [SURE] * 4 + [UNSURE] * 3 + [SURE] * 3
    assert writers(MomentumRouting(PAIR), rows(aleatoric=script)) == [1, 1, 1, 0, 0, 0, 1, 1, 1, 0]


def test_equality_is_unsure_and_so_is_what_is_no_number():
    for value in (2.275, math.nan):
        assert writers(MomentumRouting(PAIR), rows(aleatoric=[value] * 9)) == [1] * 9
    assert writers(MomentumRouting(PAIR, 4.0), rows(aleatoric=[2.275] * 4))[-1] == 0


def test_it_equals_the_rule_written_down():
    rng = random.Random(2)
    script = [rng.choice([SURE, SURE, SURE, UNSURE]) for _ in range(2000)]
    history: list[int] = []
    last, wanted = 1, []
    for value in script:
        history.append(value < 2.275)
        # The recursion unrolled: m = 0.3 sum 0.7^k [sure, k positions ago].
        momentum = 0.3 * sum(0.7**k * sure for k, sure in enumerate(reversed(history[-99:])))
        assert abs(momentum - 0.3) > 1e-9 or len(history) == 1
        last = int(momentum <= (0.7 if last else 0.3))
        wanted.append(last)
    assert writers(MomentumRouting(PAIR), rows(aleatoric=script)) == wanted
    assert min(wanted.count(0), wanted.count(1)) > 100


SERVED = Served("momentum", [(2.0, {}), (1.8, {}), (None, {}), (1.6, {"verify": {"epsilon": 0.3}})])
