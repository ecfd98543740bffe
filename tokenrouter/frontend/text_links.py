"""The detokenizer's links: homes and the planner in, the front end out.

Used by `detokenizer.py`. While the front end is down, what is posted for it goes nowhere.
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


class TextLinks:
    """Opened once the roster says who is there; ``link`` tells what changes."""

    def __init__(
        self,
        context: zmq.Context[zmq.Socket[bytes]],
        ports: Ports,
        roster: Roster,
        link: ChildLink,
    ) -> None:
        self._context, self._address, self._link = context, ports.tokenizer, link
        self._generation = roster.generation(DETOKENIZER)
        senders = dict(enumerate(roster.generations))
        senders |= {each: g for each, g in roster.others.items() if each == PLANNER}
        self._inbox = Inbox(context, ports.detokenizer, senders, self._generation)
        self._front_end: Outbox | None = self._open(roster.generation(FRONT_END))
        self._waiter = Waiter([self._inbox.socket], link)

    def wait(self) -> Iterator[tuple[int, Message | News]]:
        """(home, message) of what arrived, at least a signal; news of a home come first."""
        self._waiter.wait(None)
        taken = self._inbox.take()
        for news in self._link.receive():
            self._readdress(news)
            if isinstance(news, Down | Up):
                yield news.process, news
        yield from self._inbox.accept(taken)

    def post(self, message: Message) -> None:
        """Add to the frame that `flush` sends to the front end."""
        if self._front_end:
            self._front_end.post(message)

    def flush(self) -> None:
        """Send what was posted; if the front end has stopped reading, the supervisor sees to it."""
        if self._front_end is None:
            return
        try:
            self._front_end.flush()
        except LinkFullError as error:
            logger.error("%s", error)
            self._link.send(Stuck(FRONT_END, self._front_end.to_generation))
            self._front_end.close()
            self._front_end = None

    def close(self) -> None:
        """Close every socket."""
        self._waiter.close()
        self._inbox.close()
        if self._front_end:
            self._front_end.close()

    def _open(self, generation: int) -> Outbox:
        return Outbox(self._context, self._address, DETOKENIZER, self._generation, generation)

    def _readdress(self, news: News) -> None:
        if not isinstance(news, Down | Up):
            return
        if news.process == FRONT_END:
            if self._front_end:
                self._front_end.close()
            self._front_end = self._open(news.generation) if isinstance(news, Up) else None
        elif isinstance(news, Down):
            self._inbox.forget(news.process)
        else:
            self._inbox.expect(news.process, news.generation)
