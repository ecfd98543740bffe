"""What is computed takes the share it says, and the token oracle is the least there is."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import quality_bounds
import torch
from quality_bounds import query_mixing, query_oracle, spent, token_oracle

from tests.benchmarks.quality import point
from tokenrouter.demo.batches import ASSISTANT_ID
from tokenrouter.demo.recipes import ModelName
from tokenrouter.demo.splits import for_judging
from tokenrouter.demo.tokenizer import END_ID

SMALL, LARGE = point("small", 0.5, 0.0), point("large", 1.0, 1.0)


@pytest.mark.parametrize("share", [0.01, 0.05, 0.3])
def test_whole_queries_take_their_share(share: float) -> None:
    mixed, oracle = query_mixing(SMALL, LARGE, share), query_oracle(SMALL, LARGE, share)
    assert mixed.share == pytest.approx(share) and oracle.share == pytest.approx(share)
    assert mixed.accuracy == pytest.approx(0.5 + 0.5 * share)
    assert oracle.accuracy == pytest.approx(0.5 + share)


def test_cheap_problems_come_first() -> None:
    better = point("better", 1.0, 0.02)
    better.large[300:] = 8.0
    exact = spent("oracle", SMALL, better, 0.01)
    dear = spent("oracle", SMALL, better.first(400), 1.0)
    assert exact.exact[:300].sum() > 300 - 5 and exact.share == pytest.approx(0.01)
    assert dear.accuracy == 1.0


class Model:
    """Writes what is expected, but for the n-th token of the answer of each question."""

    def __init__(self, wrong: dict[int, set[int]]) -> None:
        self.wrong = wrong

    def __call__(self, input_ids: torch.Tensor, use_cache: bool) -> Any:
        following = torch.cat([input_ids[:, 1:], torch.full((len(input_ids), 1), END_ID)], dim=1)
        logits = torch.nn.functional.one_hot(following, 320).float()
        for row, places in self.wrong.items():
            begin = int((input_ids[row] == ASSISTANT_ID).nonzero()[0])
            for place in places:
                logits[row, begin + place] = 0.0
                logits[row, begin + place, 300] = 1.0
        return SimpleNamespace(logits=logits)


def test_the_oracle_replaces_what_is_wrong_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    models = {
        ModelName.SMALL: Model({1: {0, 7}, 2: {3}}),
        ModelName.LARGE: Model({0: {5}, 2: {3}}),
    }
    monkeypatch.setattr(quality_bounds, "_models", models.get)
    asked = for_judging(3)
    found = token_oracle(asked)
    assert found.large.tolist() == [0, 2, 1]
    assert found.exact.tolist() == [1, 1, 0], "where both are wrong, nothing helps"
    assert found.tokens.tolist() == [len(each.answer) + 1 for each in asked]
