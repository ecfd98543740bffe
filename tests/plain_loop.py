"""The plain token-by-token loop of one request that every routed run must equal.

No batch, no cache, no messages: models are functions of all tokens. It shares with the runtime
the algorithm under test, and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from tokenrouter.schedulers.base import Check, Request, RoutingScheduler, Step, Vocabulary
from tokenrouter.schedulers.signals import Checks, Declared

Ending = Callable[[Sequence[int]], dict[str, Any] | None]
"""Why an output ends with its last token, if it does."""


class PlainModel(Protocol):
    """One model's view of one request."""

    def step(
        self, tokens: Sequence[int], signals: Sequence[Declared]
    ) -> tuple[int, Mapping[str, Any]]:
        """The token it writes after ``tokens``, and the signals there, by name."""

    def check(self, tokens: Sequence[int], draft: int) -> Check:
        """What it makes of ``draft`` after ``tokens``."""


@dataclass
class Written:
    """The output: ``writers[i]`` wrote ``tokens[i]``. ``taken_back``: drafts that did not stay."""

    tokens: list[int] = field(default_factory=list)
    writers: list[int] = field(default_factory=list)
    hand_overs: int = 0
    finish: dict[str, Any] | None = None
    taken_back: int = field(default=0, compare=False)


@dataclass
class Setting:
    """What a request brings along: its seed, where it starts, and how text is read."""

    home: int = 0
    seed: int = 0
    sample: int = 0
    vocabulary: Vocabulary | None = None
    observe: Callable[[RoutingScheduler, Request, Step], None] = lambda scheduler, request, step: (
        None
    )
    """Told of every step before it is decided upon."""


def plain_loop(
    schedulers: Sequence[RoutingScheduler],
    models: Sequence[PlainModel],
    prompt: Sequence[int],
    ending: Ending,
    setting: Setting | None = None,
) -> Written:
    """One request to its finish; one scheduler and one model for each member."""
    setting = setting or Setting()
    written = Written()
    tokens, writers, requests = list(prompt), written.writers, {}
    member, payload, arrives, final = setting.home, b"", True, len(prompt)
    if (finish := ending([])) is not None:
        written.finish = finish
        return written
    while True:
        scheduler, model = schedulers[member], models[member]
        if member not in requests:
            scheduler.vocabulary = setting.vocabulary
            request = Request(list(prompt), len(prompt), member, setting.seed, setting.sample)
            request.state = scheduler.start(request)
            requests[member] = request
        request = requests[member]
        request.tokens, request.drafts = list(tokens), len(tokens) - final
        request.scratch = request.proposals = ()
        if arrives:
            scheduler.receive(request, payload)
        signals = scheduler.signals(member)
        token, values = model.step([*tokens, *request.scratch], signals)
        checks: list[Check] = []
        if arrives and any(isinstance(signal, Checks) for signal in signals):
            checks = [model.check(tokens[:i], tokens[i]) for i in range(final, len(tokens))]
        ends = scheduler.drafts and ending([*tokens[len(prompt) :], token]) is not None
        step = Step((token,), values, checks, ends, bool(request.scratch))
        setting.observe(scheduler, request, step)
        decision = scheduler.route(request, step)
        arrives = decision.to != member
        if arrives:
            payload = scheduler.send(request, step, decision)
        kept = list(step.tokens[: decision.keep])
        if decision.cut:
            kept = [step.checks[-decision.cut].token] if decision.keep else []
            del tokens[-decision.cut :], writers[-decision.cut :]
            written.taken_back += decision.cut
        tokens += kept
        writers += [member] * len(kept)
        while final < len(tokens) - decision.drafts:
            final += 1
            if (finish := ending(tokens[len(prompt) : final])) is not None:
                written.tokens, written.finish = tokens[len(prompt) : final], finish
                del writers[final - len(prompt) :]
                return written
        written.hand_overs += arrives
        member = decision.to
