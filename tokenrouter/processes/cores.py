"""Which CPU cores each member, and each tensor-parallel rank of one, has to itself.

Members that fight for cores wait for each other, and stop being asynchronous.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise


def share(
    cores: Sequence[int], sizes: Sequence[int], ranks: Sequence[int] | None = None
) -> list[list[tuple[int, ...]]]:
    """Split ``cores`` among members in proportion to their ``sizes``, at least one a rank.

    Args:
        cores: the cores there are, neighbours first.
        sizes: of each member's weights; 0: it computes nothing and gets no core.
        ranks: of each member; they get equal numbers, as they wait for each other in every
            layer. None: one of each.

    Returns:
        The cores of each member's ranks, disjoint. All empty (no pinning) if there are too few.
    """
    ranks = [1] * len(sizes) if ranks is None else ranks
    wants = [member for member, size in enumerate(sizes) if size > 0]
    left = len(cores) - sum(ranks[member] for member in wants)
    if left < 0:
        return [[()] * count for count in ranks]
    each = dict.fromkeys(wants, 1)
    while fitting := [member for member in wants if ranks[member] <= left]:
        # The next core of every rank goes where a core has most to do (highest averages).
        neediest = max(fitting, key=lambda member: sizes[member] / (each[member] * ranks[member]))
        each[neediest] += 1
        left -= ranks[neediest]
    shares: list[list[tuple[int, ...]]] = []
    start = 0
    for member, count in enumerate(ranks):
        width = each.get(member, 0)
        ends = range(start, start + width * count + 1, width) if width else [start] * (count + 1)
        shares.append([tuple(cores[i:j]) for i, j in pairwise(ends)])
        start = ends[-1]
    return shares
