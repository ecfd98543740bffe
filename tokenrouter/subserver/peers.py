"""The links of one member: front end and other members in, other members and detokenizer out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import zmq

from tokenrouter.ipc.channels import Inbox, Outbox
from tokenrouter.ipc.messages import FRONT_END, Buckets, MemberState, Message, Output
from tokenrouter.ipc.ports import Ports
from tokenrouter.ipc.waiting import Waiter


class PeerLinks:
    """`links.Links` over ZeroMQ. Opened once the roster says that every member is ready.

    A frame for a peer that does not listen yet waits in its socket.

    Args:
        context: made before the process is pinned to its cores.
        generations: of every member, in order.
    """

    def __init__(
        self,
        context: zmq.Context[zmq.Socket[bytes]],
        ports: Ports,
        member: int,
        generations: Sequence[int],
    ) -> None:
        mine = generations[member]
        others = {m: g for m, g in enumerate(generations) if m != member}
        own = ports.members[member]
        self._inboxes = (
            Inbox(context, own.peer, others, mine),
            Inbox(context, own.input, {FRONT_END: 0}, mine),
        )
        self._outboxes = {
            m: Outbox(context, ports.members[m].peer, member, mine, g) for m, g in others.items()
        }
        self._detokenizer = Outbox(context, ports.detokenizer, member, mine)
        self._waiter = Waiter([inbox.socket for inbox in self._inboxes])

    def poll(self, timeout: float | None) -> Iterator[tuple[int, Message]]:
        """(sender, message) of all that arrived; waits up to ``timeout`` s for the first."""
        ready = self._waiter.wait(timeout)
        for inbox in self._inboxes:
            if inbox.socket in ready:
                yield from inbox.drain()

    def post(self, member: int, message: Message) -> None:
        """Add to the frame that `flush` sends to another member."""
        self._outboxes[member].post(message)

    def flush(self) -> None:
        """Send one frame to each member that something was posted to."""
        for outbox in self._outboxes.values():
            outbox.flush()

    def emit(self, outputs: Sequence[Output | MemberState]) -> None:
        """Send outputs to the detokenizer, as one frame."""
        for output in outputs:
            self._detokenizer.post(output)
        self._detokenizer.flush()

    def dropped(self) -> dict[str, int]:
        """Frames that were not applied, by kind."""
        total: dict[str, int] = {}
        for inbox in self._inboxes:
            for kind, count in inbox.dropped.items():
                total[kind] = total.get(kind, 0) + count
        return total

    def delays(self) -> dict[str, Buckets]:
        """Seconds from departure to receipt of frames of peers and of the front end."""
        peers, front_end = self._inboxes
        return {"peer": peers.delays.snapshot(), "front_end": front_end.delays.snapshot()}

    def close(self) -> None:
        """Close every socket."""
        self._waiter.close()
        for inbox in self._inboxes:
            inbox.close()
        for outbox in (*self._outboxes.values(), self._detokenizer):
            outbox.close()
