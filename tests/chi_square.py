"""Whether samples of three tokens follow a law, by Pearson's test of their joint distribution."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence

import torch
from scipy.stats import chi2

Law = Callable[[tuple[int, ...]], torch.Tensor]
"""From the tokens written so far to the probabilities of the next one, float64."""
LENGTH = 3
LEAST_EXPECTED = 5.0


def p_value(law: Law, samples: Sequence[Sequence[int]], branches: int) -> float:
    """How likely so great a distance is, if the first tokens of ``samples`` follow ``law``.

    Cells: each of the ``branches`` likeliest tokens at each place, after those before; and all
    others there. Cells of which fewer than five are expected are pooled.
    """
    cells = dict(_cells(law, (), 1.0, branches))
    counts: Counter[tuple[int, ...]] = Counter(_cell(cells, sample) for sample in samples)
    total = len(samples)
    rare = [cell for cell, mass in cells.items() if mass * total < LEAST_EXPECTED]
    pairs = [(counts[cell], cells[cell] * total) for cell in cells.keys() - set(rare)]
    pooled = sum(counts[cell] for cell in rare), sum(cells[cell] for cell in rare) * total
    if pooled[1] >= LEAST_EXPECTED:
        pairs.append(pooled)
    elif rare and pairs:
        count, expected = min(pairs, key=lambda pair: pair[1])
        pairs.remove((count, expected))
        pairs.append((count + pooled[0], expected + pooled[1]))
    assert len(pairs) > 10, f"{len(pairs)} cells say little"
    distance = sum((count - expected) ** 2 / expected for count, expected in pairs)
    return float(chi2.sf(distance, len(pairs) - 1))


OTHER = -1


def _cells(
    law: Law, prefix: tuple[int, ...], mass: float, branches: int
) -> Iterator[tuple[tuple[int, ...], float]]:
    if len(prefix) == LENGTH:
        yield prefix, mass
        return
    likeliest = law(prefix).topk(branches)
    for token, part in zip(likeliest.indices.tolist(), likeliest.values.tolist(), strict=True):
        yield from _cells(law, (*prefix, token), mass * part, branches)
    yield (*prefix, OTHER), mass * (1 - float(likeliest.values.sum()))


def _cell(cells: Collection[tuple[int, ...]], sample: Sequence[int]) -> tuple[int, ...]:
    """The one that holds ``sample``."""
    whole = tuple(sample[:LENGTH])
    others = ((*whole[:length], OTHER) for length in reversed(range(LENGTH)))
    return next(cell for cell in (whole, *others) if cell in cells)
