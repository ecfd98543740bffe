"""From the tokenizer manager to homes: each request goes to its own, and to nobody else.

Receives tokenised, validated requests; hands `Submit` and `Abort` to the home's input, and
`Inspect` to any member's.
"""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Sequence

import zmq

from tokenrouter.errors import ChannelError, MemberDeadError
from tokenrouter.ipc.channels import Outbox
from tokenrouter.ipc.messages import FRONT_END, Abort, Inspect, Message, Route, Sampling, Submit
from tokenrouter.ipc.ports import Ports
from tokenrouter.ipc.supervision import Roster

logger = logging.getLogger(__name__)


class FanOut:
    """One outbox per member, and the source of uids."""

    def __init__(
        self, context: zmq.Context[zmq.Socket[bytes]], ports: Ports, roster: Roster
    ) -> None:
        self._outboxes = [
            Outbox(context, member.input, FRONT_END, to_generation=generation)
            for member, generation in zip(ports.members, roster.generations, strict=True)
        ]
        # Seconds since the epoch above a counter: grows with every request, also across
        # restarts, and stays below 2**63 until the year 2038.
        self._uids = itertools.count(int(time.time()) << 32)

    def submit(
        self, rid: str, prompt: Sequence[int], sampling: Sampling, route: Route, stream: bool
    ) -> int:
        """Send a request to its home; returns its uid.

        Raises:
            MemberDeadError: the home has stopped reading.
        """
        outbox = self._outboxes[route.home]
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

    def inspect(self, member: int, ticket: int) -> None:
        """Ask a member for its state; one that does not read is not asked."""
        if not self._outboxes[member].full:
            self._tell(member, Inspect(ticket))

    def close(self) -> None:
        """Close every link."""
        for outbox in self._outboxes:
            outbox.close()

    def _tell(self, member: int, message: Message) -> None:
        self._outboxes[member].post(message)
        try:
            self._outboxes[member].flush()
        except ChannelError as error:
            logger.warning("%s waits: %s", type(message).__name__, error)
