"""One HTTP request on its way through the tokenizer manager, and the requests made of it.

A batch of prompts, or ``n`` samples of one, is one `Exchange` and several `Live` requests.
Endpoints open exchanges; the tokenizer manager keeps `Live` requests while they last.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import msgspec

from tokenrouter.frontend.logprobs import Logprobs
from tokenrouter.frontend.record import note_exchange
from tokenrouter.frontend.report import report
from tokenrouter.ipc.messages import Route, Sampling, Text


@dataclass(slots=True, eq=False)
class Exchange:
    """What SGLang's request objects cannot carry.

    ``prompt_field`` and ``length_field`` are what this API calls the prompt and the number
    of new tokens, for errors. ``client_id`` replaces SGLang's request ids in answers: one
    for all choices, or one for each. ``seed`` is that of the draws of tokens. ``choices``:
    prompts times samples. ``minimum_field``, ``bias_field``, ``grammar_field`` and
    ``algorithm_field`` (of what named the algorithm) are fields of this API too. ``echo``: what
    each prompt's answers begin with. ``lives``: the requests made of it, in order; ``created``:
    when it came, in seconds (monotonic).
    """

    route: Route
    prompt_field: str
    length_field: str
    client_id: str | Sequence[str] | None = None
    seed: int | None = None
    choices: int = 1
    minimum_field: str = "min_tokens"
    bias_field: str = "logit_bias"
    grammar_field: str | None = None
    algorithm_field: str = "model"
    calls: str | None = None
    """The grammar of tool calls that must be written."""
    last_message: str | None = None
    """The text of a chat's last message."""
    echo: Sequence[str] = ()
    rids: list[str] = field(default_factory=list)
    lives: list[Live] = field(default_factory=list)
    created: float = field(default_factory=time.monotonic)
    reports: dict[int, dict[str, Any]] = field(default_factory=dict)
    """The latest routing report of each choice."""
    latest: dict[int, dict[str, Any]] = field(default_factory=dict)
    """The latest ``meta_info`` of each choice."""
    aborted: set[int] = field(default_factory=set)
    """Choices that the client does not want any more."""
    _sent: int = 0

    def __post_init__(self) -> None:
        note_exchange(self)

    def choices_of(self, rid: str) -> Sequence[int]:
        """The choices that the client knows as ``rid``."""
        if self.client_id is None or isinstance(self.client_id, str):
            return range(self.choices) if self.client_id == rid else ()
        return [choice for choice, each in enumerate(self.client_id) if each == rid]

    def next_route(self, max_new_tokens: int, n: int) -> tuple[Route, int | None]:
        """The route of the next request made of this exchange, and which choice it becomes.

        SGLang sends the ``n`` copies of a prompt one after the other, and before them a
        request for no token, so that they find the prompt in the cache: that one stays at
        home.
        """
        if max_new_tokens == 0:
            home = self.route.home
            return Route("single", (home,), home, token_models=self.route.token_models), None
        choice, self._sent = self._sent, self._sent + 1
        return msgspec.structs.replace(self.route, sample=choice % n), choice

    def label(self, output: Any) -> Any:
        """An answer of the tokenizer manager (or a list of them) with the client's ids."""
        for position, each in enumerate(output if isinstance(output, list) else [output]):
            index = each.get("index", position)
            meta = each["meta_info"]
            self.reports[index] = {key: meta[key] for key in ("routing", "llm_ratio")}
            self.latest[index] = meta
            if self.echo:
                prompt = index * len(self.echo) // self.choices
                each["text"] = self.echo[prompt] + each["text"]
            if isinstance(self.client_id, str):
                meta["id"] = self.client_id
            elif self.client_id is not None:
                meta["id"] = self.client_id[index]
        return output


CURRENT: ContextVar[Exchange] = ContextVar("current_exchange")
"""The exchange whose prompts are being tokenised and sent."""


@dataclass(slots=True, eq=False)
class Live:
    """A request for a home, and its answer so far.

    ``route`` may be narrower than that of the ``exchange``. ``choice``: its place in the
    answer, if it has one. ``uid`` is None until the request is sent, ``logprobs`` unless the
    client asked for them. ``asked``: the text of its last message, or its prompt, if the client
    gave one. ``internal``: SGLang's request for no token, before ``n`` samples. ``aborting``:
    its home was told to stop it, and will answer with what it has written.
    Times are seconds, monotonic, 0 before they are reached: sent to the home, started by it
    (left its queue), first and last token, ended.
    """

    exchange: Exchange
    rid: str
    prompt: Sequence[int]
    sampling: Sampling
    route: Route
    stream: bool
    choice: int | None = None
    internal: bool = False
    aborting: bool = False
    asked: str | None = None
    uid: int | None = None
    event: asyncio.Event = field(default_factory=asyncio.Event)
    created: float = field(default_factory=time.time)
    text: str = ""
    tokens: list[int] = field(default_factory=list)
    writers: list[int] = field(default_factory=list)
    logprobs: Logprobs | None = None
    member_tokens: Sequence[int] = ()
    hand_overs: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    finish: dict[str, Any] | None = None
    sent: float = 0.0
    started: float = 0.0
    first_token: float = 0.0
    last_token: float = 0.0
    ended: float = 0.0
    _taken: int = 0

    def add(self, new: Text) -> None:
        """What follows in the answer, or ends it."""
        self.text = (self.text + new.text)[: new.text_length]
        self.tokens += new.tokens
        self.writers += new.token_models or ()
        if self.logprobs is not None:
            self.logprobs.add(new.tokens, new.logprobs or ())
        self.member_tokens = new.member_tokens
        self.hand_overs = new.hand_overs
        self.prompt_tokens = new.prompt_tokens
        self.cached_tokens = new.cached_tokens
        self.finish = new.finish
        self.event.set()

    def end(self, finish: dict[str, Any]) -> None:
        """Nothing more will come."""
        self.prompt_tokens = len(self.prompt)
        self.finish = finish
        self.event.set()

    def take(self, names: Sequence[str], weight_version: str) -> dict[str, Any]:
        """The answer in SGLang's shape; a stream's ids are those since the last call."""
        route = self.exchange.route
        start, self._taken = self._taken if self.stream else 0, len(self.tokens)
        meta: dict[str, Any] = {
            "id": self.rid,
            "finish_reason": self.finish,
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": len(self.tokens),
            "cached_tokens": self.cached_tokens,
            "weight_version": weight_version,
            **report(route, names, self.member_tokens, self.hand_overs, self.writers),
        }
        if self.logprobs is not None:
            meta.update(self.logprobs.meta_info())
        text = self.text
        if self.finish:
            meta["e2e_latency"] = time.time() - self.created
        else:
            stops = () if self.sampling.no_stop_trim else self.sampling.stop
            text = text[: len(text) - held_back(text, stops)]
        return {"text": text, "output_ids": self.tokens[start:], "meta_info": meta}


def held_back(text: str, stops: Sequence[str]) -> int:
    """Characters at the end of ``text`` that may be the beginning of a stop string."""
    longest = 0
    for stop in stops:
        tail = text[-(len(stop) - 1) :] if len(stop) > 1 else ""
        start = tail.find(stop[0])
        while start >= 0 and not stop.startswith(tail[start:]):
            start = tail.find(stop[0], start + 1)
        if start >= 0:
            longest = max(longest, len(tail) - start)
    return longest
