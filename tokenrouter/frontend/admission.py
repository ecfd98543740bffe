"""How many requests the front end holds, and when nobody may begin.

The tokenizer manager lets every `Exchange` in and out here. While an action needs all
members empty, or an operator has paused the server, exchanges that come in wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tokenrouter.errors import ConflictError, OverloadedError, RequestError
from tokenrouter.frontend.exchange import Exchange


class Admission:
    """At most ``limit`` requests (prompts times samples) are here at once."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._here: set[Exchange] = set()
        self._begun: set[Exchange] = set()
        self._open = asyncio.Event()
        self._open.set()
        self._idle = asyncio.Event()
        self._idle.set()
        self._alone = asyncio.Lock()
        self._paused = False
        self.held = 0

    @property
    def exchanges(self) -> frozenset[Exchange]:
        """Those that are here, waiting ones included."""
        return frozenset(self._here)

    def enter(self, exchange: Exchange) -> None:
        """Count ``exchange`` in, until `leave`.

        Raises:
            RequestError: it is too large for ever.
            OverloadedError: too much else is here.
        """
        count = exchange.choices
        if count > self._limit:
            raise RequestError(
                f"{exchange.prompt_field}: these are {count} requests (prompts times n), and the "
                f"server holds at most {self._limit} at once; send fewer",
                exchange.prompt_field,
            )
        if self.held + count > self._limit:
            raise OverloadedError(
                f"the server holds {self.held} requests, of at most {self._limit}; try again"
            )
        self._here.add(exchange)
        self.held += count

    async def begin(self, exchange: Exchange) -> None:
        """Wait until requests may be sent to members.

        An exchange that was not counted in, as a health probe, never waits.
        """
        if exchange in self._here:
            while not self._open.is_set():
                await self._open.wait()
            self._begun.add(exchange)
            self._idle.clear()

    def leave(self, exchange: Exchange) -> None:
        """``exchange`` is over; may be called again."""
        self._begun.discard(exchange)
        if not self._begun:
            self._idle.set()
        if exchange in self._here:
            self._here.remove(exchange)
            self.held -= exchange.choices

    @asynccontextmanager
    async def alone(self, patience_s: float = 0.0) -> AsyncIterator[None]:
        """Let nobody begin meanwhile; those that come wait.

        Raises:
            ConflictError: after ``patience_s``, requests are still being served.
        """
        async with self._alone:
            self._open.clear()
            try:
                await self._until_idle(patience_s)
                yield
            finally:
                if not self._paused:
                    self._open.set()

    async def _until_idle(self, patience_s: float) -> None:
        try:
            async with asyncio.timeout(patience_s):
                await self._idle.wait()
        except TimeoutError:
            count = sum(each.choices for each in self._begun)
            raise ConflictError(
                f"{count} requests are being served; wait for them or abort them first"
            ) from None

    def pause(self) -> None:
        """Let nobody begin until `resume`."""
        self._paused = True
        self._open.clear()

    def resume(self) -> None:
        """Let those that wait begin, unless an action still needs the members alone."""
        self._paused = False
        if not self._alone.locked():
            self._open.set()
