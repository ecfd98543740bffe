"""What one visit asks of its draws beyond temperature and limits, and how logits are adjusted.

Made by `pools.py` when a visit becomes resident, applied by `engine.py` to the rows of a batch
that ask: a batch without such rows never comes here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy
import numpy.typing
import torch

from tokenrouter.errors import RequestError
from tokenrouter.ipc.messages import Sampling
from tokenrouter.subserver.engine import Visit
from tokenrouter.subserver.sglang_compat import matching
from tokenrouter.subserver.sglang_compat.matching import Matching
from tokenrouter.subserver.sglang_compat.penalties import Held, Penalties, penalty_of

MOST_BIAS = 1e6
"""What is biased more is certain, or impossible, already; divided by the least temperature, it is
still a number."""


class Place(NamedTuple):
    """``row`` of the logits: those after the first ``length`` tokens of ``visit``."""

    row: int
    visit: Visit
    length: int

    @property
    def written(self) -> int:
        """Output tokens before it."""
        return self.length - self.visit.prompt_length


Asking = Sequence[Place]
"""Places whose visit has `Rules`; several of one visit come in their order."""


class Rules:
    """Of one resident visit; lost when it is evicted, and made again from its tokens."""

    def __init__(self, visit: Visit, vocabulary: int) -> None:
        sampling = visit.sampling
        self.penalties = Penalties(visit, vocabulary) if Penalties.asked(sampling) else None
        self.bias = {
            token: min(max(bias, -MOST_BIAS), MOST_BIAS)
            for token, bias in sampling.logit_bias.items()
            if token < vocabulary
        }
        ends = {*visit.eos_ids, *sampling.stop_token_ids}
        self._ends = sorted(end for end in ends if end < vocabulary)
        # Where every id is an end, none can be forbidden.
        self._shortest = sampling.min_new_tokens if len(self._ends) < vocabulary else 0
        self._matching: Matching | None = None

    def matching(self, visit: Visit) -> Matching | None:
        """Where the visit stands in its grammar; None without one, or before it is compiled."""
        if self._matching is None and visit.grammar is not None and visit.grammar.done():
            self._matching = Matching(visit, visit.grammar.result())
        return self._matching

    def forbidden(self, written: int) -> list[int]:
        """Ids that would end the output before it may, after so many tokens."""
        return self._ends if written < self._shortest else []


def asked(sampling: Sampling) -> bool:
    """Whether a visit needs `Rules`."""
    return (
        Penalties.asked(sampling)
        or bool(sampling.logit_bias)
        or sampling.min_new_tokens > 0
        or sampling.logprobs is not None
        or sampling.seed is not None
        or sampling.grammar is not None
    )


def adjust(logits: torch.Tensor, asking: Asking) -> dict[int, RequestError]:
    """Penalties, ends that come too early, grammars and bias, in place, in SGLang's order.

    ``logits``: raw, ``[rows, vocabulary]``, float32. Returns why no token is possible in a row
    whose grammar allows none; that row is left without a grammar.
    """
    if not asking:
        return {}
    rules = [(place, place.visit.handle.rules) for place in asking]
    penalized = [(p.row, r.penalties.of(p.visit, p.length)) for p, r in rules if r.penalties]
    if penalized:
        _penalize(logits, penalized)
    early = {p.row: ends for p, r in rules if (ends := r.forbidden(p.written))}
    failed = _constrain(logits, rules, early)
    if early:
        logits[_places(logits, list(early.items()))] = -torch.inf
    if biased := [(place.row, each.bias) for place, each in rules if each.bias]:
        where = _places(logits, [(row, list(bias)) for row, bias in biased])
        values = [value for _, bias in biased for value in bias.values()]
        logits[where] += torch.tensor(values, dtype=logits.dtype, device=logits.device)
    return failed


def _penalize(logits: torch.Tensor, rows: Sequence[tuple[int, Held]]) -> None:
    where = _places(logits, [(row, held.ids) for row, held in rows])
    penalty = penalty_of([held for _, held in rows])
    divide = torch.from_numpy(penalty.divide).to(logits.device)
    subtract = torch.from_numpy(penalty.subtract).to(logits.device)
    old = logits[where]
    logits[where] = torch.where(old > 0, old / divide, old * divide) - subtract


def _constrain(
    logits: torch.Tensor, rules: Sequence[tuple[Place, Rules]], early: dict[int, list[int]]
) -> dict[int, RequestError]:
    """Apply grammars; a grammar that allows nothing but an end takes its row out of ``early``."""
    matchings = [(place, m) for place, each in rules if (m := each.matching(place.visit))]
    if not matchings:
        return {}
    failed: dict[int, RequestError] = {}
    masks = matching.new_masks(*logits.shape)
    for (row, visit, length), each in matchings:
        if problem := each.mask(visit, length, masks[row : row + 1]):
            failed[row] = _refusal(visit, problem)
            masks[row] = matching.ALL
        elif row in early and not matching.leaves(masks[row], early[row]):
            del early[row]
    matching.apply(logits, masks)
    return failed


def _refusal(visit: Visit, problem: str) -> RequestError:
    grammar = visit.sampling.grammar
    return RequestError(problem, None if grammar is None else grammar.kind)


def _places(logits: torch.Tensor, rows: Sequence[tuple[int, Any]]) -> tuple[torch.Tensor, ...]:
    """Index of (row, id) for the ids of each row."""
    counts = [len(ids) for _, ids in rows]
    flat = numpy.concatenate([numpy.asarray(ids, numpy.int64) for _, ids in rows])
    of_row = numpy.repeat([row for row, _ in rows], counts)
    return tuple(torch.from_numpy(numpy.stack((of_row, flat))).to(logits.device))
