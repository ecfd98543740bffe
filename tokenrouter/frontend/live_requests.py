"""Requests that homes serve: sent to them, answered with the detokenizer's text, ended.

The tokenizer manager hands `Live` requests over once all prompts of an exchange are legal.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

from tokenrouter.frontend.exchange import Exchange, Live
from tokenrouter.frontend.fan_out import FanOut
from tokenrouter.frontend.traffic import Traffic
from tokenrouter.ipc.messages import DETOKENIZER, Text

ABORTED = {"type": "abort", "message": "Aborted by the client"}
ABORT_S = 10.0
"""Seconds for a home to answer an abort, which it hears of between two steps."""


class LiveRequests:
    """From `submit` to their last text, or their `end`. ``by_rid``: by SGLang's request id."""

    def __init__(self, fan_out: FanOut, traffic: Traffic) -> None:
        self.by_rid: dict[str, Live] = {}
        self._fan_out, self._traffic = fan_out, traffic

    def submit(self, live: Live) -> None:
        """Send a request to its home.

        Raises:
            MemberDeadError: the home is down, or has stopped reading.
        """
        live.sent = time.monotonic()
        live.uid = self._fan_out.submit(
            live.rid, live.prompt, live.sampling, live.route, live.stream
        )
        self.by_rid[live.rid] = live
        live.exchange.rids.append(live.rid)
        live.exchange.lives.append(live)

    def receive(self, new: Text) -> None:
        """Add to an answer, unless its request was aborted while this was on its way."""
        live = self.by_rid.get(new.rid)
        if live is None:
            return
        now = time.monotonic()
        live.started = new.started
        live.first_token = live.first_token or new.first_token
        self._traffic.received(live, new.member_tokens, len(new.tokens), now)
        live.add(new)
        if live.finish:
            del self.by_rid[new.rid]
            self._traffic.ended(live, now)

    def end(self, rid: str, finish: dict[str, Any]) -> None:
        """End a request, if it is here, at once and at its home."""
        live = self.by_rid.pop(rid, None)
        if live is not None and live.uid is not None:
            if not live.aborting:
                self._fan_out.abort(live.uid, live.route.home)
            live.end(finish)
            self._traffic.ended(live, time.monotonic())

    def end_all(self, finish: dict[str, Any]) -> None:
        """End every request."""
        for rid in list(self.by_rid):
            self.end(rid, finish)

    def abort(self, exchange: Exchange, rid: str) -> int:
        """Stop those of ``exchange`` that the client, or its answer, calls ``rid``; how many."""
        choices = set(exchange.choices_of(rid)) - exchange.aborted
        exchange.aborted |= choices
        for each in exchange.rids:
            live = self.by_rid.get(each)
            if live is None or live.aborting:
                continue
            if each == rid or live.choice in choices:
                choices.add(live.choice or 0)
                self._abort(live)
        return len(choices)

    def abort_all(self) -> None:
        """Stop every request."""
        for live in list(self.by_rid.values()):
            if not live.aborting:
                self._abort(live)

    def lost(self, process: int, name: str) -> None:
        """A process died: every request that may need it fails now, and can be retried."""
        message = f"{name} died; the request may be retried"
        for rid, live in list(self.by_rid.items()):
            if process == DETOKENIZER or process in live.route.members:
                self.end(rid, {"type": "abort", "message": message, "status_code": 503})

    def _abort(self, live: Live) -> None:
        """A stream has told what was written; else only the home knows it, and answers."""
        if live.stream or live.uid is None:
            self.end(live.rid, ABORTED)
            return
        live.aborting = True
        self._fan_out.abort(live.uid, live.route.home)
        asyncio.get_running_loop().call_later(ABORT_S, self.end, live.rid, ABORTED)
