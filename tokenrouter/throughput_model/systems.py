"""Systems of known algorithms, for `plan`, benchmarks and tests: their routing and commits.

A step's successor depends on nothing but the model it ran on. That holds for `r2r`, `cascade` and
`query_level` as far as their decisions are independent from token to token, and not for
`speculative`, whose drafts have a fixed length.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy

from tokenrouter.errors import ConfigError
from tokenrouter.throughput_model.parameters import SUM_TOLERANCE, Floats, Latency, Model, System


def r2r(models: Sequence[Model], p: float, tick_ms: float | None = None) -> System:
    """A large model writes the tokens that a small one should not, a share ``p`` of them.

    R2R itself, and the algorithms `random` and `entropy`. A small step commits only if its token
    stays; a large step always commits and hands back.
    """
    _count("r2r", models, 2)
    _probability("p", p)
    return System(tuple(models), _array([[1 - p, p], [1, 0]]), _array([[1, 0], [1, 1]]), tick_ms)


def cascade(
    models: Sequence[Model], escalates: Sequence[float], tick_ms: float | None = None
) -> System:
    """Each token starts at model 0 and rises from m to m + 1 with probability ``escalates[m]``.

    The model at which it stays commits it.
    """
    _count("cascade", models, len(escalates) + 1)
    routing, committed = numpy.zeros((2, len(models), len(models)))
    for level, rises in enumerate(escalates):
        _probability(f"escalates.{level}", rises)
        routing[level, level + 1] = rises
        routing[level, 0] = 1 - rises
    routing[-1, 0] = 1.0
    committed[:, 0] = 1.0
    return System(tuple(models), routing, committed, tick_ms)


def query_level(
    models: Sequence[Model],
    shares: Sequence[float],
    mean_tokens: float,
    tick_ms: float | None = None,
) -> System:
    """A whole request is written by one model, m with probability ``shares[m]``.

    It ends after each token with probability 1 / ``mean_tokens``, and another takes its place.
    Every step feeds one token for each request, so ``per_token`` counts as ``per_request`` here.

    Raises:
        ConfigError: what is given makes no system, or a latency has a table and ``per_token``.
    """
    _count("query_level", models, len(shares))
    for index, share in enumerate(shares):
        _probability(f"shares.{index}", share)
    if abs(sum(shares) - 1.0) > SUM_TOLERANCE:
        raise ConfigError(f"shares: add up to {sum(shares):.6g}; they must be 1")
    if not 1 <= mean_tokens < numpy.inf:
        raise ConfigError(f"mean_tokens: must be at least 1, got {mean_tokens}")
    ends = 1.0 / mean_tokens
    routing = (1 - ends) * numpy.eye(len(models)) + ends * _array([shares])
    one_each = tuple(_with_one_token_each(model) for model in models)
    return System(one_each, routing, numpy.ones_like(routing), tick_ms)


def speculative(
    models: Sequence[Model], acceptance: float, draft_length: int, tick_ms: float | None = None
) -> System:
    """Model 0 drafts ``draft_length`` tokens, a step each; one step of model 1 checks them.

    Each drafted token is right with probability ``acceptance`` if all before it are, and the check
    adds one of its own: it commits `committed_by_check` on average.

    **The routing is an approximation.** It ends a draft after each step with probability
    1 / draft_length, so that lengths are geometric instead of fixed, and a chain or simulation
    of it predicts 13 to 33 % too few tokens/s (lengths of 2 to 5, acceptance 0.8, 6 and 27.9 ms):
    requests that draft equally long stay together.
    Exact only for a length of 1. To predict, replay drafts of fixed length:
    ``decisions.from_runs(system, speculative_runs(draft_length), ...)`` through `events.py`.
    """
    _count("speculative", models, 2)
    if draft_length < 1:
        raise ConfigError(f"draft_length: must be at least 1, got {draft_length}")
    ends = 1.0 / draft_length
    accepted = float(committed_by_check(acceptance, draft_length) @ numpy.arange(draft_length + 2))
    return System(
        tuple(models), _array([[1 - ends, ends], [1, 0]]), _array([[0, 0], [accepted, 0]]), tick_ms
    )


def speculative_runs(draft_length: int) -> list[dict[int, int]]:
    """Lengths of runs on each of the two models of `speculative`, for ``decisions.from_runs``."""
    return [{draft_length: 1}, {1: 1}]


def committed_by_check(acceptance: float, draft_length: int) -> Floats:
    """(draft_length + 2,): how likely a check commits 0, 1, ..., draft_length + 1 tokens.

    k accepted tokens and one more: a^k (1 - a), and a^draft_length for all of them. The mean is
    (1 - a^(draft_length + 1)) / (1 - a) (Leviathan et al., arXiv:2211.17192, equation 1).
    """
    _probability("acceptance", acceptance)
    odds = acceptance ** numpy.arange(draft_length + 1)
    odds[:-1] -= odds[1:]
    result: Floats = numpy.concatenate([[0.0], odds])
    return result


def _with_one_token_each(model: Model) -> Model:
    """``model``, for steps that feed one token for each request."""
    latency = model.latency
    if not latency.per_token:
        return model
    if latency.table:
        raise ConfigError(
            f"models.{model.name}.latency_ms: steps feed one token for each request here; "
            "add per_token to the table, for each batch size, and leave it out"
        )
    per_request = latency.per_request + latency.per_token
    return replace(model, latency=Latency(latency.base, per_request))


def _array(rows: Sequence[Sequence[float]]) -> Floats:
    return numpy.array(rows, dtype=float)


def _count(algorithm: str, models: Sequence[Model], wanted: int) -> None:
    if len(models) != wanted:
        raise ConfigError(f"models: {algorithm} needs {wanted} here, got {len(models)}")


def _probability(name: str, value: float) -> None:
    if not 0 <= value <= 1:
        raise ConfigError(f"{name}: must be from 0 to 1, got {value}")
