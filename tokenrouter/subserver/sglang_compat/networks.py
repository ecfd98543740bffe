"""Trained routers on a member: loaded when it starts, evaluated once a step.

Of tensor-parallel ranks the first alone evaluates them: hidden states are complete on each.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from sglang.srt.distributed import tensor_model_parallel_all_gather
from sglang.srt.layers.vocab_parallel_embedding import VocabParallelEmbedding
from sglang.srt.managers.scheduler import Scheduler

from tokenrouter.errors import ConfigError, RequestError
from tokenrouter.routers import small_model
from tokenrouter.routers.checkpoint import Router
from tokenrouter.routers.citer import CiterHead
from tokenrouter.routers.r2r import LOGITS, TOKEN
from tokenrouter.schedulers.signals import Declared, DeferralProbability, OfNetworks
from tokenrouter.subserver.engine import Work


class Networks:
    """The networks of ``signals``, on the member's device.

    Made on every rank of a member, since the first may need the embedding of all.

    Raises:
        ConfigError: a file holds no network, or one of another model.
    """

    def __init__(self, scheduler: Scheduler, signals: Iterable[Declared] = ()) -> None:
        runner = scheduler.tp_worker.model_runner
        wanted = dict.fromkeys(signals)
        width: int = runner.model_config.vocab_size
        self.defers = any(isinstance(each, DeferralProbability) for each in wanted)
        """Whether the last row of the logits is no token's."""
        self.vocabulary = width - self.defers
        """Ids that are tokens."""
        self._routers: dict[OfNetworks, Router] = {}
        self._heads: dict[OfNetworks, CiterHead] = {}
        for each in wanted:
            if isinstance(each, OfNetworks):
                self._load(each, runner)
        embeds = any(TOKEN in router.input_type for router in self._routers.values())
        self._embedding = _Embedding(runner.model, scheduler.tp_size) if embeds else None

    def __contains__(self, signal: object) -> bool:
        return signal in self._routers or signal in self._heads

    def check(self, signals: Iterable[Declared]) -> None:
        """Make sure that ``signals`` can be had.

        Raises:
            RequestError: one is of a network that was not loaded.
        """
        for signal in signals:
            if isinstance(signal, OfNetworks) and signal not in self:
                raise RequestError(
                    f"algorithm: {signal.path} is not loaded: members load what their "
                    "deployment's configuration names",
                    "algorithm",
                )
            if isinstance(signal, DeferralProbability) and not self.defers:
                raise RequestError(
                    "algorithm: co_llm needs a deployment that names it (key algorithm or "
                    "algorithms): the deferring row of its small model is cut off at the start",
                    "algorithm",
                )

    def asked(self, work: Sequence[Work], signals: Iterable[Declared]) -> list[Asked]:
        """Which rows want which network; only those that draw a token in this step do."""
        return [
            Asked(signal, rows)
            for signal in signals
            if isinstance(signal, OfNetworks)
            and (
                rows := [
                    row
                    for row, (visit, n) in enumerate(work)
                    if visit.pending == n and signal in visit.signals
                ]
            )
        ]

    def features(
        self,
        asked: Sequence[Asked],
        work: Sequence[Work],
        hidden: torch.Tensor | None,
        logits: torch.Tensor,
    ) -> list[Features]:
        """What the networks see of a step, but for its tokens; copies, in float32.

        Args:
            hidden: hidden states after the final norm, of each row's last token or of all
                tokens fed; None if nothing is asked.
            logits: raw ones, ``[rows, vocabulary]``.
        """
        if not asked or hidden is None:
            return []
        states = _last_of_rows(hidden, work)
        return [self._features(each, states, logits) for each in asked]

    def _features(self, asked: Asked, states: torch.Tensor, logits: torch.Tensor) -> Features:
        rows: torch.Tensor | None = None
        if len(asked.rows) < len(states):
            rows = torch.tensor(asked.rows, device=states.device)
            states, logits = states[rows], logits[rows]
        top = None
        router = self._routers.get(asked.signal)
        if router is not None and LOGITS in router.input_type:
            top = logits.topk(router.architecture.logits_size, dim=-1).values.float()
        return Features(asked.signal, rows, states.float(), top)

    def column(self, features: Features, tokens: torch.Tensor) -> torch.Tensor:
        """A signal of all rows, from the tokens that they drew, on the device (float64).

        ``[rows, 1]``, of routers ``[rows, 2]``: see `signals.Scored`. NaN where it is not asked.
        """
        signal, rows = features.signal, features.rows
        if signal in self._heads:
            value = self._heads[signal](features.hidden).double().unsqueeze(1)
        else:
            router = self._routers[signal]
            drawn = tokens if rows is None else tokens[rows]
            embedded = None
            if self._embedding is not None and TOKEN in router.input_type:
                embedded = self._embedding(drawn)
            score = router.network.probability(features.hidden, embedded, features.top).double()
            value = torch.stack((score, torch.full_like(score, router.threshold)), dim=1)
        if rows is None:
            return value
        column = value.new_full((len(tokens), value.shape[1]), torch.nan)
        column[rows] = value
        return column

    def _load(self, signal: OfNetworks, runner: Any) -> None:
        loaded = small_model.load(signal, runner.model_config.hidden_size, self.vocabulary)
        if isinstance(loaded, Router):
            loaded.network.to(runner.device)
            self._routers[signal] = loaded
        else:
            loaded.to(runner.device)
            self._heads[signal] = loaded


@dataclass(frozen=True, slots=True)
class Asked:
    """The rows of a step that want a network's signal, ascending."""

    signal: OfNetworks
    rows: Sequence[int]


@dataclass(frozen=True, slots=True)
class Features:
    """Of the rows that asked: hidden states, and the largest raw logits if they are seen.

    ``rows``: their indices; None: all rows of the step.
    """

    signal: OfNetworks
    rows: torch.Tensor | None
    hidden: torch.Tensor
    top: torch.Tensor | None


class _Embedding:
    """The small model's input embedding: its own weights, as they are now.

    Of tensor-parallel ranks, each of which has a part: a copy as they were at the start.
    """

    def __init__(self, model: torch.nn.Module, ranks: int) -> None:
        modules = (each for each in model.modules() if type(each) is VocabParallelEmbedding)
        module = next(modules, None)
        if module is None:
            raise ConfigError(
                "algorithm_args.router: the small model has no embedding that a router could "
                "share; choose another model"
            )
        self._module = module
        self._gathered: torch.Tensor | None = None
        if ranks > 1:
            with torch.no_grad():
                self._gathered = tensor_model_parallel_all_gather(module.weight.data, dim=0)

    def __call__(self, tokens: torch.Tensor) -> torch.Tensor:
        """Of ``tokens``, ``[rows, hidden_size]``, in float32."""
        weight = self._module.weight if self._gathered is None else self._gathered
        return torch.nn.functional.embedding(tokens, weight).float()


def _last_of_rows(hidden: torch.Tensor, work: Sequence[Work]) -> torch.Tensor:
    """``[rows, hidden_size]`` of hidden states of rows, or of all tokens fed."""
    if len(hidden) == len(work):
        return hidden
    counts = torch.tensor([n for _, n in work], device=hidden.device)
    return hidden[counts.cumsum(0) - 1]
