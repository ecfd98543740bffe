"""The plain loop over Hugging Face models that every served answer must equal.

`tests.plain_loop` over models that compute what they have not seen, one request at a time,
float32, greedy. Margins are recorded: a comparison is honest only where no float noise could
have decided.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, DynamicCache

from tests.integration.models import DEMO
from tests.plain_loop import Ending, Setting, plain_loop
from tests.plain_sampling import adjusted
from tokenrouter.ipc.messages import Sampling
from tokenrouter.schedulers.base import Check, Request, RoutingScheduler, Step
from tokenrouter.schedulers.registry import create
from tokenrouter.schedulers.signals import Checks, Declared
from tokenrouter.subserver.sglang_compat.signals import columns
from tokenrouter.subserver.sglang_compat.vocabulary import TokenizerVocabulary

MIN_GAP = 1e-3
"""Between the two largest logits of every sampled position."""
MIN_DISTANCE = 1e-4
"""Between every score and its threshold."""

VOCABULARY = TokenizerVocabulary(AutoTokenizer.from_pretrained(DEMO / "small"))

Finished = Callable[[Sequence[int]], bool]
Distances = Callable[[RoutingScheduler, Request, Step], Iterable[float]]
"""How far a step's scores are from their thresholds."""


@dataclass
class Answer:
    """What the loop wrote: tokens, who wrote each, and how close its decisions were."""

    tokens: list[int] = field(default_factory=list)
    writers: list[int] = field(default_factory=list)
    hand_overs: int = 0
    taken_back: int = 0
    finish: dict[str, Any] | None = None
    logprobs: list[torch.Tensor] = field(default_factory=list)
    """Of every id, where each token was written."""
    gap: float = float("inf")
    distance: float = float("inf")

    @property
    def honest(self) -> bool:
        """Whether every decision has a margin that float32 noise cannot cross."""
        return self.gap >= MIN_GAP and self.distance >= MIN_DISTANCE


class Model:
    """One Hugging Face model, float32."""

    def __init__(self, folder: Path) -> None:
        self._model = AutoModelForCausalLM.from_pretrained(folder, torch_dtype=torch.float32)
        self._model.eval()
        self._known: dict[bytes, torch.Tensor] = {}

    def begin(self) -> Context:
        """An empty context of this model, which has what others computed after equal tokens."""
        return Context(self._model, self._known)


class Context:
    """One model's view of one request; ``known``: logits by all tokens before."""

    def __init__(self, model: Any, known: dict[bytes, torch.Tensor]) -> None:
        self._model, self._known = model, known
        self._cache = DynamicCache()
        self._seen: list[int] = []

    @torch.no_grad()
    def logits(self, tokens: Sequence[int]) -> torch.Tensor:
        """Raw float32 logits after ``tokens``."""
        whole = array("H", tokens).tobytes()
        if whole in self._known:
            return self._known[whole]
        shared = 0
        for old, new in zip(self._seen, tokens, strict=False):
            if old != new:
                break
            shared += 1
        shared = min(shared, len(tokens) - 1)
        self._cache.crop(shared)
        fresh = torch.tensor([list(tokens[shared:])])
        output = self._model(fresh, past_key_values=self._cache, use_cache=True)
        self._seen = list(tokens)
        for count, row in enumerate(output.logits[0].float(), shared + 1):
            self._known[whole[: 2 * count]] = row
        return self._known[whole]


class View:
    """A `plain_loop.PlainModel`: one member, one request, with what it writes under rules."""

    def __init__(
        self,
        model: Model,
        prompt: Sequence[int],
        sampling: Sampling | None,
        eos_ids: Collection[int],
    ) -> None:
        self._context = model.begin()
        self._prompt, self._sampling, self._eos_ids = prompt, sampling, eos_ids
        self.gap = float("inf")
        self.logprobs: dict[int, torch.Tensor] = {}
        """Of every id, by the number of tokens before."""

    def step(
        self, tokens: Sequence[int], signals: Sequence[Declared]
    ) -> tuple[int, Mapping[str, Any]]:
        """The likeliest token after ``tokens``, and the signals there."""
        raw = self._context.logits(tokens).unsqueeze(0)
        wanted = [signal for signal in signals if not isinstance(signal, Checks)]
        blocks = columns(raw, wanted)
        values = {
            signal.name: block[0].tolist() if block.shape[1] > 1 else float(block[0, 0])
            for signal, block in zip(wanted, blocks, strict=True)
        }
        return self._best(tokens), values

    def check(self, tokens: Sequence[int], draft: int) -> Check:
        """What it makes of ``draft``."""
        probabilities = torch.softmax(self._context.logits(tokens), dim=-1)
        token = self._best(tokens)
        return Check(token, float(probabilities[draft]), token == draft)

    def _best(self, tokens: Sequence[int]) -> int:
        logits = self._context.logits(tokens)
        if self._sampling is not None:
            output = list(tokens[len(self._prompt) :])
            logits = adjusted(logits, self._sampling, self._prompt, output, self._eos_ids)
        best = logits.topk(2)
        self.gap = min(self.gap, float(best.values[0] - best.values[1]))
        self.logprobs[len(tokens)] = torch.log_softmax(logits, dim=-1)
        return int(best.indices[0])


def distances(scheduler: RoutingScheduler, request: Request, step: Step) -> Iterable[float]:
    """Of every score from the threshold of its member, and of checks from ``epsilon``."""
    levels = getattr(scheduler, "thresholds", None)
    for value in step.signals.values():
        yield abs(value - (scheduler.tau if levels is None else levels[request.member]))
    for check in step.checks:
        yield abs(check.probability - getattr(scheduler, "epsilon", float("inf")))


def routed_loop(
    models: Sequence[Model],
    prompt: Sequence[int],
    count: int,
    algorithm: str,
    router_threshold: float | None = None,
    *,
    args: Mapping[str, Any] | None = None,
    seed: int = 0,
    home: int = 0,
    finished: Finished = lambda output: False,
    sampling: Sampling | None = None,
    eos_ids: Collection[int] = (),
    distances: Distances = distances,
    ending: Ending | None = None,
) -> Answer:
    """``count`` tokens after ``prompt``, fewer if ``finished`` says so after one of them.

    ``sampling``: rules that change the logits (signals are of the raw ones); ``eos_ids``: of
    all members. ``ending``: instead of ``count`` and ``finished``.
    """
    names = [str(i) for i in range(len(models))]
    views = [View(model, prompt, sampling, eos_ids) for model in models]
    answer = Answer()

    def observe(scheduler: RoutingScheduler, request: Request, step: Step) -> None:
        answer.distance = min((answer.distance, *distances(scheduler, request, step)))

    def counted(output: Sequence[int]) -> dict[str, Any] | None:
        return {} if output and (len(output) == count or finished(output)) else None

    written = plain_loop(
        [create(algorithm, names, router_threshold, args) for _ in names],
        views, prompt, ending or counted,
        Setting(home, seed, vocabulary=VOCABULARY, observe=observe),
    )  # fmt: skip
    answer.tokens, answer.writers = written.tokens, written.writers
    answer.hand_overs, answer.taken_back = written.hand_overs, written.taken_back
    answer.finish = written.finish
    answer.gap = min(view.gap for view in views)
    answer.logprobs = [
        views[writer].logprobs[len(prompt) + index] for index, writer in enumerate(written.writers)
    ]
    return answer
