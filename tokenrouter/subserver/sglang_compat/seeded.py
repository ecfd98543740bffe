"""Draws of requests with a seed: a function of the request and the position, not of the batch.

Used by `engine.py`. Where SGLang draws from its generator, whose state depends on every batch
before, this inverts the same distribution's cumulative function at a uniform number that the
visit gives (`Visit.draws`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from sglang.srt.sampling.sampling_params import TOP_K_ALL

from tokenrouter.errors import TokenRouterError
from tokenrouter.subserver.engine import Visit
from tokenrouter.subserver.sglang_compat.inversion import pick
from tokenrouter.subserver.sglang_compat.rules import Asking, Place
from tokenrouter.subserver.sglang_compat.sampling import GREEDY, Draw

TOKEN, ACCEPTANCE, REPLACEMENT = range(3)
"""What a number is drawn for: a step's token; whether a draft stays, and what replaces it."""
MOST_MEMBERS = 1 << 20


class Drawn(NamedTuple):
    """``tokens[i]`` (int64) is drawn for the row ``rows[i]`` of the batch."""

    rows: torch.Tensor
    tokens: torch.Tensor


def is_seeded(visit: Visit) -> bool:
    """Whether the tokens of a resident visit are drawn here."""
    return visit.draws is not None and visit.handle.draw != GREEDY


def draw_seeded(logits: torch.Tensor, seeded: Asking) -> Drawn | None:
    """Tokens at the places in ``seeded``, from adjusted logits ``[rows, vocabulary]``."""
    if not seeded:
        return None
    rows = torch.tensor([place.row for place in seeded], device=logits.device)
    uniforms = [uniform(place) for place in seeded]
    draws = [place.visit.handle.draw for place in seeded]
    return Drawn(rows, invert(logits[rows], draws, uniforms))


def uniform(place: Place, purpose: int = TOKEN) -> float:
    """Of this member and position, for one purpose; algorithms use the streams from 0 on."""
    draws = place.visit.draws
    if draws is None:
        raise TokenRouterError(f"request {place.visit.uid} has no seed")
    return draws.draw(-1 - draws.member - purpose * MOST_MEMBERS, place.written)


def invert(logits: torch.Tensor, draws: Sequence[Draw], uniforms: Sequence[float]) -> torch.Tensor:
    """The token at which each row's cumulative probability passes its uniform number."""
    uniform = torch.tensor(uniforms, dtype=torch.float64, device=logits.device)
    return pick(law_of(logits, draws), uniform)


def law_of(logits: torch.Tensor, draws: Sequence[Draw]) -> torch.Tensor:
    """Probabilities of the tokens of each row, but for a factor, from adjusted logits.

    Limits are applied as SGLang's PyTorch sampler does; they leave a greedy row one token.
    """
    temperature, top_p, top_k, min_p = _columns(draws, logits.device)
    probabilities = torch.softmax(logits / temperature, dim=-1)
    if any(draw[1:] != (1.0, TOP_K_ALL, 0.0) for draw in draws):
        probabilities = _limited(probabilities, top_p, top_k, min_p)
    return probabilities


def likeliest(
    logits: torch.Tensor, draws: Sequence[Draw], count: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """At most ``count`` ids to which `law_of` gives most, ascending; and what it gives them."""
    temperature, top_p, top_k, min_p = _columns(draws, logits.device)
    probabilities = torch.softmax(logits / temperature, dim=-1)
    ordered, ids = probabilities.topk(min(count, logits.shape[-1]), dim=-1)
    ordered = ordered.where(_kept(ordered, top_p, top_k, min_p), 0.0)
    ids, places = ids.sort(dim=-1)
    return ids, ordered.gather(1, places)


def _columns(draws: Sequence[Draw], device: torch.device) -> tuple[torch.Tensor, ...]:
    column = torch.tensor(draws, dtype=torch.float64, device=device)
    return tuple(column.float().unsqueeze(2).unbind(1))


def _limited(
    probabilities: torch.Tensor, top_p: torch.Tensor, top_k: torch.Tensor, min_p: torch.Tensor
) -> torch.Tensor:
    ordered, ids = probabilities.sort(dim=-1, descending=True, stable=True)
    kept = _kept(ordered, top_p, top_k, min_p)
    return torch.zeros_like(ordered).scatter(1, ids, ordered.where(kept, 0.0))


def _kept(
    ordered: torch.Tensor, top_p: torch.Tensor, top_k: torch.Tensor, min_p: torch.Tensor
) -> torch.Tensor:
    """Which of the largest probabilities, descending, the limits keep: the first ones."""
    places = torch.arange(ordered.shape[-1], device=ordered.device)
    kept = (places < top_k) & (ordered.cumsum(dim=-1) - ordered <= top_p)
    return kept & (ordered >= ordered[:, :1] * min_p)
