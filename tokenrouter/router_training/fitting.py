"""The network learns from examples: class-weighted loss, epochs that can be resumed, early stop."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import torch
from rich.progress import Progress
from torch.nn.functional import binary_cross_entropy_with_logits

from tokenrouter.router_training.collecting import TOP_LOGITS
from tokenrouter.router_training.labels import Examples, Splits
from tokenrouter.router_training.pair import digest
from tokenrouter.router_training.store import Store
from tokenrouter.routers.r2r import Architecture, RouterNetwork

CHECKPOINT = "fitting.pt"
MODEL_TYPE = "HiddenStatesTokenLMHeadLogitsClassifier"
EVALUATION_ROWS = 8192


@dataclass(frozen=True)
class Recipe:
    """Shape of the network and how it learns; the defaults are R2R's, but for the epochs.

    ``patience``: epochs without a lower validation loss before it stops. ``decay``: whether the
    learning rate falls along a cosine to zero over ``epochs``, instead of staying.
    """

    width: int = 1024
    blocks: int = 6
    expansion: int = 4
    dropout: float = 0.1
    normalize_input: bool = False
    learning_rate: float = 5e-5
    weight_decay: float = 5e-4
    batch_size: int = 1024
    epochs: int = 50
    patience: int = 5
    decay: bool = False
    seed: int = 0


@dataclass(frozen=True)
class Losses:
    """Mean losses of an epoch, in nats per position, positives weighted."""

    training: float
    validation: float


class Fit:
    """A network in training; ``best`` are its weights at the lowest validation loss so far."""

    def __init__(self, recipe: Recipe, embedding: torch.Tensor, device: str) -> None:
        self.recipe, self.device = recipe, device
        self.embedding = embedding.float().to(device)
        torch.manual_seed(recipe.seed)
        self.network = RouterNetwork(_architecture(recipe, embedding.shape)).to(device)
        self.optimizer = torch.optim.AdamW(
            self.network.parameters(), lr=recipe.learning_rate, weight_decay=recipe.weight_decay
        )
        self.history: list[Losses] = []
        self.best: dict[str, torch.Tensor] = {}

    @property
    def best_epoch(self) -> int:
        """The epoch of ``best``, from 1 on; 0 before the first."""
        losses = [each.validation for each in self.history]
        return losses.index(min(losses)) + 1 if losses else 0

    @property
    def is_over(self) -> bool:
        """Whether all epochs are over, or the last ones brought nothing."""
        done = len(self.history)
        return done >= self.recipe.epochs or done - self.best_epoch >= self.recipe.patience

    def outputs(self, examples: Examples, rows: torch.Tensor) -> torch.Tensor:
        """The network's logits for some rows of the examples."""
        embedded = self.embedding[examples.token[rows].long().to(self.device)]
        hidden = examples.hidden[rows].float().to(self.device)
        logits = examples.logits[rows].float().to(self.device)
        found: torch.Tensor = self.network(hidden, embedded, logits)[:, 0]
        return found

    def scores(self, examples: Examples) -> torch.Tensor:
        """The probability by which the network says that the large model should write, [n]."""
        self.network.eval()
        with torch.inference_mode():
            parts = torch.arange(len(examples)).split(EVALUATION_ROWS)
            found = [self.outputs(examples, rows).sigmoid().cpu() for rows in parts]
        return torch.cat(found)

    def epoch(self, splits: Splits) -> None:
        """Learn from every example once, in an order that the seed and the epoch's number give."""
        number = len(self.history)
        torch.manual_seed(self.recipe.seed * 1_000_003 + number + 1)
        weight = torch.tensor(positive_weight(splits.training), device=self.device)
        rows = torch.randperm(len(splits.training)).split(self.recipe.batch_size)
        total = 0.0
        self.network.train()
        for index, batch in enumerate(rows):
            self._set_rate((number + index / len(rows)) / self.recipe.epochs)
            labels = splits.training.label[batch].float().to(self.device)
            loss = binary_cross_entropy_with_logits(
                self.outputs(splits.training, batch), labels, pos_weight=weight
            )
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            total += float(loss.detach()) * len(batch)
        validation = self._loss(splits.validation, weight.cpu())
        self.history.append(Losses(total / len(splits.training), validation))
        if self.best_epoch == len(self.history):
            state = self.network.state_dict()
            self.best = {name: each.detach().cpu().clone() for name, each in state.items()}

    def _set_rate(self, progress: float) -> None:
        if self.recipe.decay:
            share = (1 + torch.cos(torch.tensor(progress * torch.pi)).item()) / 2
            for group in self.optimizer.param_groups:
                group["lr"] = self.recipe.learning_rate * share

    def _loss(self, examples: Examples, weight: torch.Tensor) -> float:
        scores = self.scores(examples).double().clamp(1e-12, 1 - 1e-12)
        labels = examples.label.double()
        losses = -(weight * labels * scores.log() + (1 - labels) * (1 - scores).log())
        return float(losses.mean())

    def state(self) -> dict[str, Any]:
        """Everything that the next epoch depends on."""
        return {
            "network": self.network.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "history": [asdict(each) for each in self.history],
            "best": self.best,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from `state`."""
        self.network.load_state_dict(state["network"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.history = [Losses(**each) for each in state["history"]]
        self.best = state["best"]


def positive_weight(examples: Examples) -> float:
    """Negatives per positive."""
    return (len(examples) - examples.positives) / examples.positives


def fit(
    store: Store,
    splits: Splits,
    embedding: torch.Tensor,
    recipe: Recipe,
    device: str,
    bars: Progress,
    labelled: Any,
) -> Fit:
    """Train until the recipe says stop; its network has the best weights then.

    An unfinished training of the same recipe on the same labels (``labelled`` says how they were
    made) goes on after its last epoch; any other starts anew.
    """
    fitting = Fit(recipe, embedding, device)
    made_of = digest([asdict(recipe), labelled])
    if store.has(CHECKPOINT):
        saved = torch.load(store.path(CHECKPOINT), map_location=device, weights_only=True)
        if saved.pop("made_of") == made_of:
            fitting.restore(saved)
    task = bars.add_task("fitting", total=recipe.epochs, completed=len(fitting.history))
    while not fitting.is_over:
        fitting.epoch(splits)
        store.write(CHECKPOINT, partial(torch.save, fitting.state() | {"made_of": made_of}))
        now, best = fitting.history[-1], fitting.best_epoch
        bars.update(
            task,
            advance=1,
            description=f"fitting: loss {now.training:.4f}, validation {now.validation:.4f}, "
            f"best in epoch {best}",
        )
    bars.remove_task(task)
    fitting.network.load_state_dict(fitting.best)
    return fitting


def _architecture(recipe: Recipe, embedding: tuple[int, ...]) -> Architecture:
    vocabulary, hidden = embedding
    return Architecture(
        MODEL_TYPE,
        hidden_size=hidden,
        logits_size=min(TOP_LOGITS, vocabulary),
        widths=(recipe.width,) * recipe.blocks,
        expansion=recipe.expansion,
        normalize=recipe.normalize_input,
        dropout=recipe.dropout,
    )
