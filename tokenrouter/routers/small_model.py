"""Trained networks for one small model: loaded, and refused if made for another."""

from __future__ import annotations

from tokenrouter.routers import checkpoint, citer
from tokenrouter.routers.checkpoint import Router
from tokenrouter.routers.citer import CiterHead
from tokenrouter.schedulers.signals import OfNetworks, RouterScore


def load(signal: OfNetworks, hidden_size: int, vocabulary: int) -> Router | CiterHead:
    """What computes ``signal``, on the CPU.

    Args:
        hidden_size: of the small model.
        vocabulary: token ids that it may write.

    Raises:
        ConfigError: the file holds none, or one of another small model.
    """
    if isinstance(signal, RouterScore):
        router = checkpoint.load(signal.path)
        checkpoint.check_small_model(router, hidden_size, vocabulary)
        return router
    head = citer.load(signal.path)
    citer.check_small_model(head, hidden_size)
    return head
