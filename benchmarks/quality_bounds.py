"""What no router of tokens reaches, and what routers of whole queries do: computed, not served.

Mixtures are of the two models' own answers. The token oracle knows the expected answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy
import torch
from quality_points import Point, mixture
from transformers import AutoModelForCausalLM

from tokenrouter.demo.batches import Batch, collate, encode
from tokenrouter.demo.recipes import MODELS_FOLDER, ModelName
from tokenrouter.demo.task import Problem


def query_mixing(small: Point, large: Point, share: float) -> Point:
    """Whole answers by the large model, drawn without looking, at this share of large tokens."""
    few, many = small.tokens.sum(), large.tokens.sum()
    drawn = share * few / (many * (1 - share) + share * few)
    return mixture("random query mixing", [(1 - drawn, small), (drawn, large)])


def query_oracle(small: Point, large: Point, share: float) -> Point:
    """Whole answers by the large model only where they help, the shortest first."""
    return spent("query oracle", small, large, share)


def spent(method: str, small: Point, better: Point, share: float) -> Point:
    """``better`` where it is right and ``small`` is not, the cheapest first, up to a share."""
    helped = numpy.flatnonzero(better.exact > small.exact)
    helped = helped[numpy.argsort(better.large[helped], kind="stable")]
    # Problem i adds better.large[i] large tokens and changes the length of its answer.
    excess = better.large - share * (better.tokens - small.tokens)
    total = numpy.cumsum(excess[helped])
    budget = share * small.tokens.sum()
    whole = int(numpy.searchsorted(total, budget, side="right"))
    weights = numpy.zeros(len(small.exact))
    weights[helped[:whole]] = 1.0
    if whole < len(helped):
        rest = budget - (total[whole - 1] if whole else 0.0)
        weights[helped[whole]] = rest / excess[helped[whole]]
    return mixture(method, [(1 - weights, small), (weights, better)])


def token_oracle(asked: Sequence[Problem], batch_size: int = 250) -> Point:
    """The expected answers with as few large tokens as can be; exact where that is possible.

    An answer is exact only if every token is the expected one: the small model has to be
    replaced wherever its most probable next token is another, and nowhere else.
    """
    small, large = (_models(name) for name in (ModelName.SMALL, ModelName.LARGE))
    needed: list[float] = []
    possible: list[float] = []
    for start in range(0, len(asked), batch_size):
        batch = collate([encode([problem]) for problem in asked[start : start + batch_size]])
        wrong = _wrong(small, batch)
        needed += wrong.sum(dim=1).double().tolist()
        possible += (~(wrong & _wrong(large, batch)).any(dim=1)).double().tolist()
    exact = numpy.array(possible)
    tokens = numpy.array([len(problem.answer.encode()) + 1.0 for problem in asked])
    return Point("token oracle", None, None, exact, exact, tokens, numpy.array(needed))


def _models(name: ModelName) -> Any:
    return AutoModelForCausalLM.from_pretrained(MODELS_FOLDER / name)


def _wrong(model: Any, batch: Batch) -> torch.Tensor:
    """Where a model, given the expected answer so far, would not write its next token."""
    with torch.no_grad():
        written = model(input_ids=batch.inputs, use_cache=False).logits.argmax(-1)
    return (written != batch.targets) & batch.counted
