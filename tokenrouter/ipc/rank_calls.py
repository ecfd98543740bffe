"""What rank 0 of a tensor-parallel member tells its other ranks: the calls of its engine.

Part of the protocol of `messages`.
"""

from __future__ import annotations

import msgspec


class Admit(msgspec.Struct, frozen=True, array_like=True, tag="admit"):
    """The engine of rank 0 gave a visit a slot and ``len(tokens) - 1`` cached tokens.

    ``tokens``: those, and the one after them.
    """

    uid: int
    tokens: list[int]


class Share(msgspec.Struct, frozen=True, array_like=True, tag="share"):
    """Other visits may find the KV of the visit's first ``length`` tokens."""

    uid: int
    length: int


class Truncate(msgspec.Struct, frozen=True, array_like=True, tag="truncate"):
    """The visit's KV from position ``length`` on is free."""

    uid: int
    length: int


class Release(msgspec.Struct, frozen=True, array_like=True, tag="release"):
    """Everything the visit held is free."""

    uid: int


class Feed(msgspec.Struct, frozen=True, array_like=True, tag="feed"):
    """Rank 0 begins a step: (uid, tokens that it feeds) of each row, in order.

    ``digest`` stands for all batches before this one, as rank 0 built them. ``checked``: after
    which tokens, counted over all rows, logits are computed beside those after each row.
    """

    rows: list[tuple[int, list[int]]]
    digest: int
    checked: list[int] = []


ToRank = Admit | Share | Truncate | Release | Feed
"""Calls of a tensor-parallel member's engine, in the order in which rank 0 made them."""
