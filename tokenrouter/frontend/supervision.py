"""The front end's ear for the supervisor, in its event loop.

Receives deaths and returns of other processes, and the order to drain; hands them on to the
tokenizer manager. Pings are answered here, so that an answer proves that the loop turns.
"""

from __future__ import annotations

import asyncio
import logging
import signal

from tokenrouter.errors import ChannelError
from tokenrouter.frontend.tokenizer_manager import RoutedTokenizerManager
from tokenrouter.ipc.supervision import ChildLink, Down, Drained, Serving, Up

logger = logging.getLogger(__name__)


class Supervision:
    """``url``: where clients can connect once `watch` is called."""

    def __init__(self, link: ChildLink, manager: RoutedTokenizerManager, url: str) -> None:
        self._link, self._manager, self._url = link, manager, url
        self._draining: asyncio.Task[None] | None = None

    def watch(self) -> None:
        """Say that clients can connect, and listen; call it in the running event loop."""
        self._manager.hear_news = self._hear
        asyncio.get_running_loop().add_reader(self._link.fileno(), self._hear)
        self._link.send(Serving(self._url))

    def _hear(self) -> None:
        try:
            news = self._link.receive()
        except ChannelError as error:
            logger.error("%s: stopping", error)
            asyncio.get_running_loop().remove_reader(self._link.fileno())
            signal.raise_signal(signal.SIGTERM)
            return
        for each in news:
            if isinstance(each, Down):
                self._manager.lost(each.process)
                if each.for_good:  # the planner: thresholds are not what it planned any more
                    self._manager.inspector.planned = None
            elif isinstance(each, Up):
                self._manager.returned(each)
            elif self._draining is None:
                self._draining = asyncio.create_task(self._drain())

    async def _drain(self) -> None:
        await self._manager.drain()
        self._link.send(Drained())
