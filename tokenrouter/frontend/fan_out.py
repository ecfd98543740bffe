"""From the tokenizer manager to homes: each request goes to its own, and to nobody else.

Receives tokenised, validated requests; hands `Submit` and `Abort` to the home's input, and
`Inspect` and `Control` to any member's. A member that is down is told nothing: it will know
nothing.
"""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Sequence

import zmq

from tokenrouter.errors import ChannelError, MemberDeadError
from tokenrouter.ipc.channels import Outbox
from tokenrouter.ipc.messages import FRONT_END, Abort, Message, Route, Sampling, Submit
from tokenrouter.ipc.operations import Control, Inspect
from tokenrouter.ipc.ports import Ports
from tokenrouter.ipc.supervision import Roster, Up

logger = logging.getLogger(__name__)


class FanOut:
    """One outbox per member, and the source of uids."""

    def __init__(
        self, context: zmq.Context[zmq.Socket[bytes]], ports: Ports, roster: Roster
    ) -> None:
        self._context, self._ports = context, ports
        self._generation = roster.generation(FRONT_END)
        self._outboxes = {
            member: self._outbox(member, generation)
            for member, generation in enumerate(roster.generations)
        }
        # The time since the epoch in units of 2**-32 s: grows with every request, also across
        # restarts, and stays below 2**63 until the year 2038.
        self._uids = itertools.count((time.time_ns() << 32) // 10**9)

    def submit(
        self, rid: str, prompt: Sequence[int], sampling: Sampling, route: Route, stream: bool
    ) -> int:
        """Send a request to its home; returns its uid.

        Raises:
            MemberDeadError: the home is down, or has stopped reading.
        """
        outbox = self._outboxes.get(route.home)
        if outbox is None:
            raise MemberDeadError("a model died and is being restarted; try again in a few seconds")
        if outbox.full:  # nothing of this request may wait here
            raise MemberDeadError(
                f"a model has stopped answering (link to {outbox.address} is full); try later"
            )
        uid = next(self._uids)
        outbox.post(Submit(uid, rid, list(prompt), sampling, route, stream))
        outbox.flush()
        return uid

    def abort(self, uid: int, home: int) -> None:
        """Tell the home that nobody waits for ``uid``; if it does not read, it learns later."""
        self._tell(home, Abort(uid))

    def ask(self, member: int, question: Inspect | Control) -> None:
        """Ask a member something; one that does not read is not asked."""
        outbox = self._outboxes.get(member)
        if outbox and not outbox.full:
            self._tell(member, question)

    def lost(self, member: int) -> None:
        """A member died: close its link."""
        if outbox := self._outboxes.pop(member, None):
            outbox.close()

    def returned(self, up: Up) -> None:
        """A member is back."""
        self._outboxes[up.process] = self._outbox(up.process, up.generation)

    def close(self) -> None:
        """Close every link."""
        for outbox in self._outboxes.values():
            outbox.close()

    def _outbox(self, member: int, generation: int) -> Outbox:
        address = self._ports.members[member].input
        return Outbox(self._context, address, FRONT_END, self._generation, generation)

    def _tell(self, member: int, message: Message) -> None:
        outbox = self._outboxes.get(member)
        if outbox is None:
            return
        outbox.post(message)
        try:
            outbox.flush()
        except ChannelError as error:
            logger.warning("%s waits: %s", type(message).__name__, error)
