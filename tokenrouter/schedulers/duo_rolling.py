"""As ``rolling``, without an entropy and with an empty window at first: R2R's ``duo_rolling``."""

from __future__ import annotations

from collections.abc import Collection

from tokenrouter.schedulers.base import Step
from tokenrouter.schedulers.rolling import SMALL, RollingRouting
from tokenrouter.schedulers.signals import Aleatoric, Declared


class DuoRolling(RollingRouting):
    """After a small token: the large model writes where AU >= tau.

    After a large one it stays while the mean of the last AUs is at least tau, over at most
    ``window`` positions after the one where it was asked (`windows.Rolling`). AU is the small
    model's aleatoric uncertainty, at every position. tau is ``router_threshold`` (default
    2.275). The small model's token is dropped where the large one writes.
    """

    with_trigger = False

    def signals(self, member: int) -> Collection[Declared]:
        """The uncertainty of the small model's steps."""
        return (Aleatoric(),) if member == SMALL else ()

    def certain(self, step: Step) -> bool:
        """Never."""
        return False
