"""What the loop needs of the links to the rest of the deployment (`peers.PeerLinks` has them)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from tokenrouter.ipc.member_state import Buckets, MemberState
from tokenrouter.ipc.messages import Message, Output
from tokenrouter.ipc.operations import Controlled
from tokenrouter.ipc.supervision import News


class Links(Protocol):
    """The rest of the deployment, as one member sees it."""

    def poll(self, timeout: float | None) -> Iterable[tuple[int, Message | News]]:
        """(sender, message) of all that arrived; waits up to ``timeout`` s for the first.

        News of a process comes before anything of its next generation.
        """

    def post(self, member: int, message: Message) -> None:
        """Add to the frame that `flush` sends to another member; if it is down, drop."""

    def flush(self) -> None:
        """Send one frame to each member that something was posted to."""

    def wake(self) -> None:
        """End a `poll` that waits, or the next one, at once; from any thread."""

    def emit(self, outputs: Sequence[Output | MemberState | Controlled]) -> None:
        """Send outputs to the detokenizer."""

    def busy(self, seconds: float) -> None:
        """Tell the supervisor that the loop may not turn for so long."""

    def dropped(self) -> dict[str, int]:
        """Frames that were not applied, by kind."""

    def delays(self) -> dict[str, Buckets]:
        """Seconds from departure to receipt of frames, by the link they came on."""
