"""Which tokens diverge, by hand; and prompts, not positions, are split."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from rich.progress import Progress

from tokenrouter.errors import MeasurementError
from tokenrouter.router_training.collecting import Shards, file_of
from tokenrouter.router_training.labels import divergences, diverges, split_examples
from tokenrouter.router_training.store import Store


def test_by_hand() -> None:
    tokens = torch.tensor([5, 6, 7, 8, 9])
    answer = torch.tensor([5, 1, 2, 3, 9])
    probability = torch.tensor([1.0, 0.05, 0.1, 0.4, 0.001])
    found = diverges(tokens, answer, probability, epsilon=0.1)
    assert found.tolist() == [False, True, False, False, False]
    assert diverges(tokens, answer, probability, epsilon=1.0).tolist() == [0, 1, 1, 1, 0]


def shards_of(folder: Path, mismatches: set[int]) -> Shards:
    """Twenty prompts in two shards; answers have two tokens, of which the second may differ."""
    store = Store(folder, {})
    for shard in range(2):
        prompts = torch.arange(10) + 10 * shard
        answers = torch.stack([prompts, prompts], dim=1).flatten().int()
        tokens = answers.clone()
        for prompt in mismatches & set(prompts.tolist()):
            tokens[2 * (prompt - 10 * shard) + 1] += 1
        lengths = torch.full((10,), 2)
        store.write_arrays(file_of("answers", shard), {"tokens": answers, "lengths": lengths})
        arrays = {"token": tokens, "logits": torch.zeros(20, 3), "hidden": torch.zeros(20, 4)}
        store.write_arrays(file_of("features", shard), arrays)
        probability = torch.where(tokens == answers, 1.0, 0.01)
        store.write_arrays(file_of("probabilities", shard), {"probability": probability})
    return Shards(store, [[0]] * 20, 10, Progress(disable=True))


def test_eight_of_ten_prompts_train_one_validates_one_tests(tmp_path: Path) -> None:
    shards = shards_of(tmp_path, {0, 3, 8, 19})
    splits = split_examples(shards, [divergences(shards, shard, 0.1) for shard in range(2)])
    assert sorted(set(splits.training.token.tolist())) == [
        *(0, 1, 2, 3, 4, 5, 6, 7),
        *(10, 11, 12, 13, 14, 15, 16, 17),
    ]  # the wrong tokens of prompts 0 and 3 are 1 and 4
    assert splits.validation.token.tolist() == [8, 9, 18, 18]
    assert splits.validation.label.tolist() == [False, True, False, False]
    assert splits.test.token.tolist() == [9, 9, 19, 20]
    assert splits.test.label.tolist() == [False, False, False, True]


def test_a_split_without_a_divergent_token(tmp_path: Path) -> None:
    shards = shards_of(tmp_path, {0, 8})
    with pytest.raises(MeasurementError, match="4 positions for test, 0 change the meaning"):
        split_examples(shards, [divergences(shards, shard, 0.1) for shard in range(2)])
