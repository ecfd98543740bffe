"""What a deployment of timed members must answer: a plain loop over one request.

It shares with the server the algorithm and the function from contexts to tokens, and nothing
else: no batch, no cache, no message.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from transformers import AutoTokenizer

from tokenrouter.config import Config
from tokenrouter.frontend.names import RoutingOptions, resolve
from tokenrouter.schedulers.base import Request, Step
from tokenrouter.schedulers.registry import create
from tokenrouter.subserver.sglang_compat.vocabulary import printable_ids
from tokenrouter.subserver.timed import (
    context_of,
    entropy,
    extend_context,
    next_token,
    top_probability,
)


@dataclass(frozen=True)
class Answer:
    """``writers[i]`` is the member that writes ``ids[i]``; ``text`` ends before a stop string."""

    ids: list[int]
    writers: list[int]
    text: str
    finish: str


class Oracle:
    """Of the deployment with this configuration."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self.tokenizer: Any = AutoTokenizer.from_pretrained(str(config.tokenizer_path))
        self._alphabet = printable_ids(self.tokenizer)

    def chat(self, content: str) -> list[int]:
        """Prompt ids of a conversation that has just begun."""
        turn = [{"role": "user", "content": content}]
        ids: list[int] = self.tokenizer.apply_chat_template(turn, add_generation_prompt=True)
        return ids

    def answer(
        self, model: str, prompt: Sequence[int], count: int, stop: str = "", sample: int = 0
    ) -> Answer:
        """What ``model`` writes after ``prompt``: ``count`` tokens, or up to ``stop``."""
        names = self._config.names
        route = resolve(model, RoutingOptions(), self._config)
        scheduler = create(route.algorithm, names, route.router_threshold, route.args)
        contexts = [context_of(prompt, self._config.seed + m) for m in range(len(names))]
        request = Request(list(prompt), len(prompt), route.home, route.seed, sample)
        text, writers = "", []
        while len(writers) < count and not (stop and stop in text):
            context = contexts[request.member]
            token = next_token(context, self._alphabet)
            signals = {"entropy": entropy(context), "top_probability": top_probability(context)}
            decision = scheduler.route(request, Step((token,), signals))
            if decision.keep:
                writers.append(request.member)
                text += chr(token)
                request.tokens = [*request.tokens, token]
                contexts = [extend_context(each, token) for each in contexts]
            request.member = decision.to
        stopped = len(writers) < count  # a stop string in the last one allowed changes nothing
        ids = list(request.tokens[len(prompt) :])
        finish = "stop" if stopped else "length"
        return Answer(ids, writers, text.partition(stop)[0] if stopped else text, finish)
