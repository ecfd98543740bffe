"""The planner's links: members' states in; questions and plans out, and what it tells operators.

Used by `process.py`. While a process is down, what is posted for it goes nowhere.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

import zmq

from tokenrouter.errors import LinkFullError
from tokenrouter.ipc.channels import Inbox, Outbox
from tokenrouter.ipc.messages import DETOKENIZER, FRONT_END, PLANNER, Message
from tokenrouter.ipc.ports import Ports
from tokenrouter.ipc.supervision import ChildLink, Down, News, Roster, Stuck, Up
from tokenrouter.ipc.waiting import Waiter

logger = logging.getLogger(__name__)


class PlannerLinks:
    """Opened once the roster says who is there; ``link`` tells what changes."""

    def __init__(
        self,
        context: zmq.Context[zmq.Socket[bytes]],
        ports: Ports,
        roster: Roster,
        link: ChildLink,
    ) -> None:
        self._context, self._ports, self._link = context, ports, link
        self._generation = roster.generation(PLANNER)
        members = dict(enumerate(roster.generations))
        self._inbox = Inbox(context, ports.planner, members, self._generation)
        receivers = {**members, DETOKENIZER: roster.generation(DETOKENIZER)}
        self._outboxes = {process: self._open(process, g) for process, g in receivers.items()}
        self._waiter = Waiter([self._inbox.socket], link)

    def poll(self, timeout: float) -> Iterator[tuple[int, Message | News]]:
        """(process, message) of what arrives within ``timeout`` s; news of a process come first.

        Raises:
            ChannelError: a frame was lost, or the supervisor is gone.
        """
        self._waiter.wait(timeout)
        taken = self._inbox.take()
        for news in self._link.receive():
            self._readdress(news)
            if isinstance(news, Down | Up):
                yield news.process, news
        yield from self._inbox.accept(taken)

    def wake(self) -> None:
        """End a `poll` that waits, or the next one, at once; from any thread."""
        self._waiter.wake()

    def send(self, process: int, message: Message) -> None:
        """Tell a member or the detokenizer, unless it is down or does not read."""
        outbox = self._outboxes.get(process)
        if outbox is None:
            return
        outbox.post(message)
        try:
            outbox.flush()
        except LinkFullError as error:
            logger.error("%s", error)
            self._link.send(Stuck(process, outbox.to_generation))
            self._outboxes.pop(process).close()

    def close(self) -> None:
        """Close every socket."""
        self._waiter.close()
        self._inbox.close()
        for outbox in self._outboxes.values():
            outbox.close()

    def _open(self, process: int, generation: int) -> Outbox:
        ports = self._ports
        address = ports.members[process].input if process >= 0 else ports.detokenizer
        return Outbox(self._context, address, PLANNER, self._generation, generation)

    def _readdress(self, news: News) -> None:
        if not isinstance(news, Down | Up) or news.process == FRONT_END:
            return
        if outbox := self._outboxes.pop(news.process, None):
            outbox.close()
        if isinstance(news, Up):
            self._outboxes[news.process] = self._open(news.process, news.generation)
        if news.process < 0:
            return
        if isinstance(news, Up):
            self._inbox.expect(news.process, news.generation)
        else:
            self._inbox.forget(news.process)
