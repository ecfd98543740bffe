"""The plain loop over Hugging Face models that every served answer must equal.

Each model computes the whole context it has not seen, one request at a time, float32,
greedy; the algorithm's own class decides, as the served one does. Margins are recorded: a
comparison is honest only where no float noise could have decided.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM

from tests.plain_sampling import adjusted
from tokenrouter.ipc.messages import Sampling
from tokenrouter.schedulers.base import Request, Step
from tokenrouter.schedulers.registry import create

MIN_GAP = 1e-3
"""Between the two largest logits of every sampled position."""
MIN_DISTANCE = 1e-4
"""Between every score and its threshold."""

Finished = Callable[[Sequence[int]], bool]


@dataclass
class Answer:
    """What the loop wrote: tokens, who wrote each, and how close its decisions were."""

    tokens: list[int] = field(default_factory=list)
    writers: list[int] = field(default_factory=list)
    hand_overs: int = 0
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

    def begin(self) -> Context:
        """An empty context of this model."""
        return Context(self._model)


class Context:
    """One model's view of one request."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self._cache: Any = None
        self._seen = 0
        self._logits = torch.empty(0)

    @torch.no_grad()
    def logits(self, tokens: Sequence[int]) -> torch.Tensor:
        """Raw float32 logits after ``tokens``, which only ever grow."""
        if self._seen < len(tokens):
            fresh = torch.tensor([list(tokens[self._seen :])])
            output = self._model(fresh, past_key_values=self._cache, use_cache=True)
            self._cache, self._seen = output.past_key_values, len(tokens)
            self._logits = output.logits[0, -1].float()
        return self._logits


def routed_loop(
    models: Sequence[Model],
    prompt: Sequence[int],
    count: int,
    algorithm: str,
    router_threshold: float | None = None,
    *,
    seed: int = 0,
    home: int = 0,
    finished: Finished = lambda output: False,
    sampling: Sampling | None = None,
    eos_ids: Collection[int] = (),
) -> Answer:
    """``count`` tokens after ``prompt``, fewer if ``finished`` says so after one of them.

    ``sampling``: rules that change the logits (signals are of the raw ones); ``eos_ids``: of
    all members.
    """
    scheduler = create(algorithm, [str(i) for i in range(len(models))], router_threshold)
    contexts = [model.begin() for model in models]
    tokens = list(prompt)
    answer = Answer()
    member = home
    while True:
        logits = contexts[member].logits(tokens)
        probabilities = torch.softmax(logits, dim=-1)
        signals = {
            "entropy": float(torch.special.entr(probabilities).sum()),
            "top_probability": float(probabilities.max()),
        }
        if sampling is not None:
            logits = adjusted(logits, sampling, prompt, answer.tokens, eos_ids)
        best = logits.topk(2)
        answer.gap = min(answer.gap, float(best.values[0] - best.values[1]))
        for signal in scheduler.signals(member):
            threshold = _threshold(scheduler, member)
            answer.distance = min(answer.distance, abs(signals[signal.name] - threshold))
        request = Request(tokens, len(prompt), member, seed)
        decision = scheduler.route(request, Step((int(best.indices[0]),), signals))
        for token in [int(best.indices[0])][: decision.keep]:
            tokens.append(token)
            answer.tokens.append(token)
            answer.writers.append(member)
            answer.logprobs.append(torch.log_softmax(logits, dim=-1))
        if decision.keep and (len(answer.tokens) == count or finished(answer.tokens)):
            break
        answer.hand_overs += decision.to != member
        member = decision.to
    return answer


def _threshold(scheduler: Any, member: int) -> float:
    levels = getattr(scheduler, "thresholds", None)
    return float(levels[member] if levels is not None else scheduler.tau)
