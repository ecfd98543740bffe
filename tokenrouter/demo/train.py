"""Train one model of the demo pair: `python -m tokenrouter.demo.train --model small`.

Matrices inside the layers are trained by Muon (torch 2.9 or later), which needs a fraction of the
steps AdamW needs; embeddings and norms by AdamW. The loss counts only the tokens an assistant
writes. Training is single-threaded and, unless `--minutes` limits it, a function of its arguments;
a run that was interrupted goes on from its checkpoint when started again.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Annotated

import torch
import typer
from rich.progress import Progress, TextColumn
from torch.nn.functional import cross_entropy
from transformers import Qwen3ForCausalLM

from tokenrouter.demo.batches import Batch, collate, encode, training_batches
from tokenrouter.demo.recipes import MODELS_FOLDER, RECIPES, ModelName, build_model, save_model
from tokenrouter.demo.task import problems

FULL_RATES = (1e-2, 3e-3)  # of matrices, of other weights
WARM_UP_STEPS = 40
DECAY_FROM = 0.4
GRADIENT_LIMIT = 1.0
CHECK_EVERY = 100
CHECK_PROBLEMS = 128


@dataclass(frozen=True)
class Budget:
    """How much training: a number of steps or, if given, of seconds."""

    steps: int
    seconds: float | None

    def progress(self, step: int, seconds: float) -> float:
        """The share of the budget used; at 1 or more the training is over."""
        return step / self.steps if self.seconds is None else seconds / self.seconds


class Training:
    """A model in training: its optimizers, and how far it has come (steps and seconds)."""

    def __init__(self, model: Qwen3ForCausalLM) -> None:
        self.model = model
        self.step = 0
        self.seconds = 0.0
        matrices = [weight for weight in model.model.layers.parameters() if weight.ndim == 2]
        inside = {id(weight) for weight in matrices}
        others = [weight for weight in model.parameters() if id(weight) not in inside]
        self.optimizers: list[torch.optim.Optimizer] = [
            torch.optim.Muon(matrices, weight_decay=0.01, adjust_lr_fn="match_rms_adamw"),
            torch.optim.AdamW(others, betas=(0.9, 0.98), weight_decay=0.0),
        ]

    def update(self, batch: Batch, rate: float) -> float:
        """One step at this share of the full learning rates; returns the mean loss in nats."""
        started = time.monotonic()
        hidden = self.model.model(input_ids=batch.inputs, use_cache=False).last_hidden_state
        logits = self.model.lm_head(hidden[batch.counted])
        loss = cross_entropy(logits, batch.targets[batch.counted])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), GRADIENT_LIMIT)
        for optimizer, full_rate in zip(self.optimizers, FULL_RATES, strict=True):
            for group in optimizer.param_groups:
                group["lr"] = full_rate * rate
            optimizer.step()
            optimizer.zero_grad()
        self.step += 1
        self.seconds += time.monotonic() - started
        return float(loss.detach())

    def save(self, path: Path) -> None:
        """Write a checkpoint, whole or not at all."""
        partial = path.with_suffix(".partial")
        state = {
            "step": self.step,
            "seconds": self.seconds,
            "model": self.model.state_dict(),
            "optimizers": [optimizer.state_dict() for optimizer in self.optimizers],
        }
        torch.save(state, partial)
        partial.replace(path)

    def load(self, path: Path) -> None:
        """Go on from a checkpoint."""
        state = torch.load(path, weights_only=True)
        self.step, self.seconds = state["step"], state["seconds"]
        self.model.load_state_dict(state["model"])
        for optimizer, saved in zip(self.optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(saved)


def learning_rate(step: int, progress: float) -> float:
    """The share of the full rate: linear warm-up, then flat, then a linear decay to zero."""
    return min(1.0, (step + 1) / WARM_UP_STEPS, (1 - progress) / (1 - DECAY_FROM))


def exact_share(model: Qwen3ForCausalLM, batch: Batch) -> float:
    """The share of conversations in which every answer token is the most probable one.

    These are the conversations that greedy decoding would get exactly right.
    """
    with torch.no_grad():
        predicted = model(input_ids=batch.inputs, use_cache=False).logits.argmax(-1)
    right = (predicted == batch.targets) | ~batch.counted
    return float(right.all(dim=1).double().mean())


def train(training: Training, budget: Budget, batch_size: int, seed: int, checkpoint: Path) -> None:
    """Train until the budget is used, with a progress bar and regular checkpoints."""
    held_out = islice(problems("held_out", "check"), CHECK_PROBLEMS)
    check = collate([encode([problem]) for problem in held_out])
    batches = training_batches(seed, batch_size, training.step)
    with Progress(*Progress.get_default_columns(), TextColumn("{task.fields[loss]}")) as bar:
        task = bar.add_task("training", total=1.0, loss="")
        while (progress := budget.progress(training.step, training.seconds)) < 1:
            loss = training.update(next(batches), learning_rate(training.step, progress))
            bar.update(task, completed=progress, loss=f"step {training.step} loss {loss:.4f}")
            if training.step % CHECK_EVERY == 0:
                training.save(checkpoint)
                exact = exact_share(training.model, check)
                bar.console.log(
                    f"step {training.step}: loss {loss:.4f}, held-out exact {exact:.3f}"
                )


def main(
    name: Annotated[ModelName, typer.Option("--model", help="Which model of the pair.")],
    out: Annotated[
        Path | None, typer.Option(help="Folder to write; the pair's own if left out.")
    ] = None,
    minutes: Annotated[
        float | None, typer.Option(min=0, help="Train for this long, whatever the steps.")
    ] = None,
    steps: Annotated[
        int | None, typer.Option(min=1, help="Steps; the recipe's own if left out.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the weights and of the problems.")] = 0,
) -> None:
    """Train one model of the demo pair and write its folder."""
    torch.set_num_threads(1)
    recipe = RECIPES[name]
    folder = out or MODELS_FOLDER / name
    folder.mkdir(parents=True, exist_ok=True)
    checkpoint = folder / f"checkpoint_seed{seed}.pt"
    training = Training(build_model(recipe, seed))
    if checkpoint.exists():
        training.load(checkpoint)
    budget = Budget(steps or recipe.steps, None if minutes is None else minutes * 60)
    train(training, budget, recipe.batch_size, seed, checkpoint)
    save_model(training.model, folder)
    checkpoint.unlink(missing_ok=True)
    typer.echo(f"{folder}: {training.step} steps in {training.seconds:.0f} s")


if __name__ == "__main__":
    typer.run(main)
