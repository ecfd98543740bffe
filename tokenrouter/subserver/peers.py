"""The links of one member: front end, planner, other members in; these and the detokenizer out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import zmq

from tokenrouter.ipc.member_state import Buckets, MemberState
from tokenrouter.ipc.messages import DETOKENIZER, FRONT_END, PLANNER, Output
from tokenrouter.ipc.operations import Controlled
from tokenrouter.ipc.ports import Ports
from tokenrouter.ipc.process_links import ProcessLinks
from tokenrouter.ipc.supervision import Busy, ChildLink, Roster


class PeerLinks(ProcessLinks):
    """`links.Links` over ZeroMQ."""

    def __init__(
        self,
        context: zmq.Context[zmq.Socket[bytes]],
        ports: Ports,
        member: int,
        roster: Roster,
        link: ChildLink,
    ) -> None:
        own = ports.members[member]
        peers = {m: each.peer for m, each in enumerate(ports.members) if m != member}
        senders = {own.peer: list(peers), own.input: [FRONT_END, PLANNER]}
        receivers = {**peers, PLANNER: ports.planner, DETOKENIZER: ports.detokenizer}
        super().__init__(context, member, roster, link, senders, receivers)

    def emit(self, outputs: Sequence[Output | MemberState | Controlled]) -> None:
        """Send outputs to the detokenizer, as one frame, unless it is down."""
        if outbox := self._outboxes.get(DETOKENIZER):
            for output in outputs:
                outbox.post(output)
            self._flush([(DETOKENIZER, outbox)])

    def busy(self, seconds: float) -> None:
        """Tell the supervisor that the loop may not turn for so long."""
        self._link.send(Busy(seconds))

    def dropped(self) -> dict[str, int]:
        """Frames that were not applied, by kind."""
        total: Counter[str] = Counter()
        for inbox in self._inboxes:
            total.update(inbox.dropped)
        return dict(total)

    def delays(self) -> dict[str, Buckets]:
        """Seconds from departure to receipt of frames of peers, and of front end and planner."""
        peers, front_end = self._inboxes
        return {"peer": peers.delays.snapshot(), "front_end": front_end.delays.snapshot()}
