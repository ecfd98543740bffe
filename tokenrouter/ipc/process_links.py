"""All links of a process that polls: who writes to it, whom it writes to, and the supervisor.

While another process is down, what is posted for it goes nowhere, and what it had sent is stale.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping

import zmq

from tokenrouter.errors import LinkFullError
from tokenrouter.ipc.channels import Inbox, Outbox
from tokenrouter.ipc.messages import PLANNER, SUPERVISOR, Message
from tokenrouter.ipc.supervision import ChildLink, Down, News, Roster, Stuck, Up
from tokenrouter.ipc.waiting import Waiter

logger = logging.getLogger(__name__)


class ProcessLinks:
    """Opened once the roster says who is there; ``link`` tells what changes.

    A frame for a process that does not listen yet waits in its socket. Without a planner in
    the roster, nothing comes from one, or goes to one.

    Args:
        context: made before the process is pinned to its cores.
        process: whose links these are.
        senders: for each address of ``process``, whose frames come there.
        receivers: the addresses of those it writes to.
    """

    def __init__(
        self,
        context: zmq.Context[zmq.Socket[bytes]],
        process: int,
        roster: Roster,
        link: ChildLink,
        senders: Mapping[str, Collection[int]],
        receivers: Mapping[int, str],
    ) -> None:
        self._context, self._process, self._link = context, process, link
        self._generation = roster.generation(process)
        absent = () if PLANNER in roster.others else (PLANNER,)
        self._inboxes: list[Inbox] = []
        self._inbox_of: dict[int, Inbox] = {}
        for address, group in senders.items():
            known = {each: roster.generation(each) for each in group if each not in absent}
            inbox = Inbox(context, address, known, self._generation)
            self._inboxes.append(inbox)
            self._inbox_of |= dict.fromkeys(known, inbox)
        self._addresses = {p: each for p, each in receivers.items() if p not in absent}
        self._outboxes = {p: self._open(p, roster.generation(p)) for p in self._addresses}
        self._waiter = Waiter([inbox.socket for inbox in self._inboxes], link)

    def poll(self, timeout: float | None) -> Iterator[tuple[int, Message | News]]:
        """(sender, message) of all that arrived; waits up to ``timeout`` s for the first.

        Raises:
            ChannelError: a frame was lost, or the supervisor is gone.
        """
        ready = self._waiter.wait(timeout)
        taken = [(inbox, inbox.take()) for inbox in self._inboxes if inbox.socket in ready]
        # After the frames are taken, before they are judged: the news about their senders is
        # here before they are.
        for news in self._link.receive():
            self._follow(news)
            yield SUPERVISOR, news
        for inbox, frames in taken:
            yield from inbox.accept(frames)

    def post(self, process: int, message: Message) -> None:
        """Add to the frame that `flush` sends to ``process``, unless it is down."""
        if outbox := self._outboxes.get(process):
            outbox.post(message)

    def flush(self) -> None:
        """Send one frame to each process that something was posted to.

        Raises:
            ChannelError: a frame is larger than a receiver takes.
        """
        self._flush([each for each in self._outboxes.items() if each[1].posted])

    def wake(self) -> None:
        """End a `poll` that waits, or the next one, at once; from any thread."""
        self._waiter.wake()

    def close(self) -> None:
        """Close every socket."""
        self._waiter.close()
        for inbox in self._inboxes:
            inbox.close()
        for outbox in self._outboxes.values():
            outbox.close()

    def _open(self, process: int, generation: int) -> Outbox:
        address = self._addresses[process]
        return Outbox(self._context, address, self._process, self._generation, generation)

    def _flush(self, outboxes: Iterable[tuple[int, Outbox]]) -> None:
        """Send; whoever has stopped reading counts as down, and the supervisor sees to it."""
        for process, outbox in outboxes:
            try:
                outbox.flush()
            except LinkFullError as error:
                logger.error("%s", error)
                self._link.send(Stuck(process, outbox.to_generation))
                self._outboxes.pop(process).close()

    def _follow(self, news: News) -> None:
        """Forget a process that died; know it again when it is back."""
        if not isinstance(news, Down | Up):
            return
        if outbox := self._outboxes.pop(news.process, None):
            outbox.close()
        inbox = self._inbox_of.get(news.process)
        if isinstance(news, Up):
            if news.process in self._addresses:
                self._outboxes[news.process] = self._open(news.process, news.generation)
            if inbox:
                inbox.expect(news.process, news.generation)
        elif inbox:
            inbox.forget(news.process)
