"""A run that takes a second: few prompts, short answers, a tiny network."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from tokenrouter.calibration.prompts import question
from tokenrouter.demo.recipes import MODELS_FOLDER
from tokenrouter.demo.splits import for_training
from tokenrouter.router_training.fitting import Recipe
from tokenrouter.router_training.run import Wanted

FIRST = "finished"
PROMPTS, SHARD = 30, 10
RECIPE = Recipe(
    width=16, blocks=2, expansion=2, learning_rate=3e-3, batch_size=64, epochs=4, patience=4
)


def wanted(small: Path, out: Path, **changes: Any) -> Wanted:
    """Of a pair whose large model is the demo's small one."""
    whole = Wanted(
        small=small,
        large=MODELS_FOLDER / "small",
        prompts=[question(problem.question) for problem in for_training(PROMPTS)],
        out=out,
        max_tokens=32,
        batch_size=SHARD,
        recipe=RECIPE,
        small_name="noisy",
    )
    return replace(whole, **changes)
