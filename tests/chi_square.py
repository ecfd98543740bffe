"""Whether samples of three tokens follow a law, by Pearson's test of their joint distribution."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence

import torch
from scipy.stats import chi2

Law = Callable[[tuple[int, ...]], torch.Tensor]
"""From the tokens written so far to the probabilities of the next one, float64."""
Cell = tuple[int, ...]
LENGTH = 3
OTHER = -1
LEAST_EXPECTED = 5.0
FEWEST_CELLS = 12


def p_value(law: Law, samples: Sequence[Sequence[int]]) -> float:
    """How likely so great a distance is, if the first tokens of ``samples`` follow ``law``.

    Cells: after tokens that are expected often enough, each token that is; and all others.
    """
    total = len(samples)
    cells = dict(_cells(law, (), float(total)))
    counts = Counter(_cell(cells, sample) for sample in samples)
    rare = [cell for cell, expected in cells.items() if expected < LEAST_EXPECTED]
    pairs = [(counts[cell], cells[cell]) for cell in cells.keys() - set(rare)]
    if rare:
        seldom, expected = sum(counts[cell] for cell in rare), sum(cells[cell] for cell in rare)
        count, least = pairs.pop(pairs.index(min(pairs, key=lambda pair: pair[1])))
        pairs.append((count + seldom, least + expected))
    if len(pairs) < FEWEST_CELLS:
        raise ValueError(f"{len(pairs)} cells say little")
    distance = sum((count - expected) ** 2 / expected for count, expected in pairs)
    return float(chi2.sf(distance, len(pairs) - 1))


def _cells(law: Law, prefix: Cell, expected: float) -> Iterator[tuple[Cell, float]]:
    """Each cell that begins with ``prefix``, and how many samples are expected in it."""
    if len(prefix) == LENGTH:
        yield prefix, expected
        return
    probabilities = law(prefix)
    often = (probabilities * expected >= LEAST_EXPECTED).nonzero().flatten().tolist()
    for token in often:
        yield from _cells(law, (*prefix, token), expected * float(probabilities[token]))
    yield (*prefix, OTHER), expected * max(1 - float(probabilities[often].sum()), 0.0)


def _cell(cells: Collection[Cell], sample: Sequence[int]) -> Cell:
    """The one that holds ``sample``."""
    whole = tuple(sample[:LENGTH])
    others = ((*whole[:length], OTHER) for length in reversed(range(LENGTH)))
    return next(cell for cell in (whole, *others) if cell in cells)
