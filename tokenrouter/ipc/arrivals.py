"""An `Inbox` in an asyncio loop (the front end's, behind the detokenizer)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

from tokenrouter.ipc.channels import Inbox
from tokenrouter.ipc.messages import Message


async def arrivals(inbox: Inbox, news: Callable[[], None]) -> AsyncIterator[list[Message]]:
    """What arrives, in order, in lists of what was there at once; other tasks run in between.

    ``news`` is called before frames are judged: that their sender was restarted may be heard
    elsewhere, and counts before them.

    Raises:
        ChannelError: a frame was lost.
    """
    loop = asyncio.get_running_loop()
    readable = asyncio.Event()
    descriptor = inbox.socket.fileno()
    loop.add_reader(descriptor, readable.set)
    try:
        while True:
            # ZeroMQ's descriptor tells of changes, not of states: the state is asked for after
            # forgetting the last change, and before waiting for the next.
            readable.clear()
            if not inbox.socket.poll(0):
                await readable.wait()
                continue
            taken = inbox.take()
            news()
            yield [message for _, message in inbox.accept(taken)]
            await asyncio.sleep(0)
    finally:
        loop.remove_reader(descriptor)
