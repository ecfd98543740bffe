"""The links of one member: front end, planner, other members in; these and the detokenizer out.

While another process is down, its links are closed and what is posted for it goes nowhere.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence

import zmq

from tokenrouter.errors import LinkFullError
from tokenrouter.ipc.channels import Inbox, Outbox
from tokenrouter.ipc.member_state import Buckets, MemberState
from tokenrouter.ipc.messages import DETOKENIZER, FRONT_END, PLANNER, SUPERVISOR, Message, Output
from tokenrouter.ipc.operations import Controlled
from tokenrouter.ipc.ports import Ports
from tokenrouter.ipc.supervision import Busy, ChildLink, Down, News, Roster, Stuck, Up
from tokenrouter.ipc.waiting import Waiter

CLIENTS = (FRONT_END, PLANNER)
"""Whose frames come to a member's input; peers have a socket of their own."""

logger = logging.getLogger(__name__)


class PeerLinks:
    """`links.Links` over ZeroMQ. Opened once the roster says that every member is ready.

    A frame for a peer that does not listen yet waits in its socket.

    Args:
        context: made before the process is pinned to its cores.
        link: to the supervisor, which tells who died and who is back.
    """

    def __init__(
        self,
        context: zmq.Context[zmq.Socket[bytes]],
        ports: Ports,
        member: int,
        roster: Roster,
        link: ChildLink,
    ) -> None:
        self._context, self._ports, self._member = context, ports, member
        self._generation = roster.generation(member)
        others = {m: g for m, g in enumerate(roster.generations) if m != member}
        own = ports.members[member]
        clients = {FRONT_END: roster.generation(FRONT_END)}
        if PLANNER in roster.others:
            clients[PLANNER] = roster.others[PLANNER]
        self._inboxes = (
            Inbox(context, own.peer, others, self._generation),
            Inbox(context, own.input, clients, self._generation),
        )
        others |= {each: g for each, g in roster.others.items() if each == PLANNER}
        others[DETOKENIZER] = roster.generation(DETOKENIZER)
        self._outboxes = {process: self._outbox(process, g) for process, g in others.items()}
        self._link = link
        self._waiter = Waiter([inbox.socket for inbox in self._inboxes], link)

    def poll(self, timeout: float | None) -> Iterator[tuple[int, Message | News]]:
        """(sender, message) of all that arrived; waits up to ``timeout`` s for the first."""
        ready = self._waiter.wait(timeout)
        taken = [(inbox, inbox.take()) for inbox in self._inboxes if inbox.socket in ready]
        # After the frames are taken, before they are judged: the news about their senders is
        # here before they are.
        for news in self._link.receive():
            self._readdress(news)
            yield SUPERVISOR, news
        for inbox, frames in taken:
            yield from inbox.accept(frames)

    def post(self, member: int, message: Message) -> None:
        """Add to the frame that `flush` sends to a member or the planner, unless it is down."""
        if outbox := self._outboxes.get(member):
            outbox.post(message)

    def flush(self) -> None:
        """Send one frame to each process that something was posted to."""
        for process in list(self._outboxes):
            if process != DETOKENIZER:
                self._flush(process)

    def wake(self) -> None:
        """End a `poll` that waits, or the next one, at once; from any thread."""
        self._waiter.wake()

    def emit(self, outputs: Sequence[Output | MemberState | Controlled]) -> None:
        """Send outputs to the detokenizer, as one frame, unless it is down."""
        if outbox := self._outboxes.get(DETOKENIZER):
            for output in outputs:
                outbox.post(output)
            self._flush(DETOKENIZER)

    def busy(self, seconds: float) -> None:
        """Tell the supervisor that the loop may not turn for so long."""
        self._link.send(Busy(seconds))

    def dropped(self) -> dict[str, int]:
        """Frames that were not applied, by kind."""
        total: dict[str, int] = {}
        for inbox in self._inboxes:
            for kind, count in inbox.dropped.items():
                total[kind] = total.get(kind, 0) + count
        return total

    def delays(self) -> dict[str, Buckets]:
        """Seconds from departure to receipt of frames of peers, and of front end and planner."""
        peers, front_end = self._inboxes
        return {"peer": peers.delays.snapshot(), "front_end": front_end.delays.snapshot()}

    def close(self) -> None:
        """Close every socket."""
        self._waiter.close()
        for inbox in self._inboxes:
            inbox.close()
        for outbox in self._outboxes.values():
            outbox.close()

    def _outbox(self, process: int, generation: int) -> Outbox:
        if process >= 0:
            address = self._ports.members[process].peer
        else:
            address = self._ports.planner if process == PLANNER else self._ports.detokenizer
        return Outbox(self._context, address, self._member, self._generation, generation)

    def _flush(self, process: int) -> None:
        """Send; whoever has stopped reading counts as down, and the supervisor sees to it."""
        outbox = self._outboxes[process]
        try:
            outbox.flush()
        except LinkFullError as error:
            logger.error("%s", error)
            self._link.send(Stuck(process, outbox.to_generation))
            self._outboxes.pop(process).close()

    def _readdress(self, news: News) -> None:
        """Forget a process that died; know it again when it is back."""
        if not isinstance(news, Down | Up):
            return
        process = news.process
        inbox = self._inboxes[process in CLIENTS]
        if isinstance(news, Down):
            if outbox := self._outboxes.pop(process, None):
                outbox.close()
            if process != DETOKENIZER:
                inbox.forget(process)
            return
        if process != FRONT_END:
            self._outboxes[process] = self._outbox(process, news.generation)
        if process != DETOKENIZER:
            inbox.expect(process, news.generation)
