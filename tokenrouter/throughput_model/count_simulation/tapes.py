"""Routing decisions drawn once, for every threshold vector that `simulate` compares.

The i-th request that leaves a model goes the same way under every vector (common random
numbers), so vectors differ by what thresholds do and hardly by luck.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy
from numpy.typing import NDArray

from tokenrouter.throughput_model.parameters import Floats, System

LONGEST = 1 << 20
"""Decisions on a tape, at most (but for a block). A longer run starts it again."""
SHORTEST_BLOCK = 8192
PER_REQUEST = 80
"""A block has so many decisions for each request: fewer, and small batches are too even."""
BATCH_SHARE = 3
"""A usual batch has one in so many of all requests: what length of tape a run takes."""


@dataclass(frozen=True, eq=False, slots=True)
class Tapes:
    """One cyclic tape of decisions for each model.

    ``sums``: (M, length + N + 1, M - 1); ``sums[m, i, k]`` of the first i requests that left
    model m went to k (the others to the last model), so a batch that begins at i < length
    costs one subtraction. The tape begins again behind its end, for N more decisions.
    """

    sums: NDArray[numpy.int32]
    length: int


def draw(system: System, concurrency: int, decisions: int, seed: int) -> Tapes:
    """Tapes of about ``decisions`` for up to N = ``concurrency`` requests.

    A tape is made of shuffled blocks, each with the exact proportions of the model's row of
    the routing matrix but for one request a way, and the whole tape has them but for one.
    Exact proportions take most of the noise out of the throughput; blocks much longer than a
    batch keep the number of requests in a batch that go one way close to multinomial.
    """
    block = max(SHORTEST_BLOCK, PER_REQUEST * concurrency)
    blocks = math.ceil(min(decisions, LONGEST) / block)
    length = block * blocks
    generator = numpy.random.default_rng(seed)
    shape = (system.size, length + concurrency + 1, system.size - 1)
    sums = numpy.zeros(shape, dtype=numpy.int32)
    for model, row in enumerate(system.routing):
        ways = _decisions(row, block, blocks, generator)
        cyclic = numpy.concatenate([ways, ways[:concurrency]])
        for way in range(system.size - 1):
            numpy.cumsum(cyclic == way, out=sums[model, 1:, way])
    return Tapes(sums, length)


def tapes_for(system: System, concurrency: int, events: int, seed: int) -> Tapes:
    """Tapes that runs of ``events`` completions seldom have to begin again."""
    return draw(system, concurrency, events * concurrency // BATCH_SHARE, seed)


def _decisions(
    row: Floats, block: int, blocks: int, generator: numpy.random.Generator
) -> NDArray[numpy.int8]:
    """(block * blocks,): where each request goes that leaves the model with this row."""
    offsets = (generator.permutation(blocks)[:, None] + 0.5) / blocks
    points = (numpy.arange(block) + offsets) / block  # all blocks together: a fine regular grid
    edges = numpy.cumsum(row / row.sum())[:-1]
    ways = numpy.searchsorted(edges, points, side="right").astype(numpy.int8)
    return generator.permuted(ways, axis=1).ravel()
