"""Which CPU cores each member has to itself.

Members that fight for cores wait for each other, and stop being asynchronous.
"""

from __future__ import annotations

from collections.abc import Sequence


def share(cores: Sequence[int], sizes: Sequence[int]) -> list[tuple[int, ...]]:
    """Split ``cores`` among members in proportion to their ``sizes``, at least one each.

    Args:
        cores: the cores there are, neighbours first.
        sizes: of each member's weights; 0: it computes nothing and gets no core.

    Returns:
        The cores of each member, disjoint. All empty (no pinning) if there are too few.
    """
    wants = [member for member, size in enumerate(sizes) if size > 0]
    if len(cores) < len(wants) or not wants:
        return [() for _ in sizes]
    counts = dict.fromkeys(wants, 1)
    for _ in range(len(cores) - len(wants)):
        # The next core goes where a core has most to do (highest averages).
        neediest = max(wants, key=lambda member: sizes[member] / counts[member])
        counts[neediest] += 1
    shares: list[tuple[int, ...]] = []
    start = 0
    for member in range(len(sizes)):
        count = counts.get(member, 0)
        shares.append(tuple(cores[start : start + count]))
        start += count
    return shares
