"""Where a request starts, if its algorithm chooses that from the prompt.

Between the tokenizer manager, which has the prompt, and homes, which must not wait for it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from tokenrouter.errors import ConfigError, RoutingError, Terminated
from tokenrouter.frontend.algorithms import scheduler_of
from tokenrouter.ipc.messages import Route
from tokenrouter.schedulers.base import Request, RoutingScheduler
from tokenrouter.schedulers.mistakes import failure

logger = logging.getLogger(__name__)


class Placement:
    """Asks algorithms that choose members; ``names``: of all members."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names

    async def place(self, route: Route, prompt: Sequence[int], text: Callable[[], str]) -> Route:
        """``route``, with the members that the algorithm chose from the prompt.

        ``text``: of the last message, or the prompt of a completion.

        Raises:
            RoutingError: it failed.
        """
        scheduler = scheduler_of(route, self._names)
        if not scheduler.chooses_members:
            return route
        request = Request(prompt, len(prompt), route.home, route.seed, route.sample)
        try:
            chosen = await asyncio.to_thread(_choose, scheduler, request, text)
        except Terminated:
            raise
        except (Exception, SystemExit) as error:
            if not isinstance(error, ConfigError):
                logger.exception("choose_members of %r", route.algorithm)
            raise RoutingError(failure(route.algorithm, "choose_members", error)) from error
        return msgspec.structs.replace(route, members=tuple(sorted(chosen)), home=chosen[0])


def _choose(scheduler: RoutingScheduler, request: Request, text: Callable[[], str]) -> list[int]:
    chosen = list(scheduler.choose_members(request, text()))
    if not chosen or not {*chosen} <= {*range(len(scheduler.members))}:
        raise ValueError(f"it chose {chosen} of {len(scheduler.members)} members")
    return chosen


def last_text(messages: Sequence[Any]) -> str | None:
    """The text of the last of a chat's messages; None: it has none."""
    content = getattr(messages[-1], "content", None) if messages else None
    if isinstance(content, str):
        return content
    parts = [getattr(part, "text", None) for part in content or ()]
    texts = [part for part in parts if isinstance(part, str)]
    return "\n".join(texts) if texts else None
