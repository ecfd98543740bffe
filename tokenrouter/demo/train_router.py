"""Train the router of the demo pair: `python -m tokenrouter.demo.train_router --work FOLDER`.

The same stages as `tokenrouter train-router`, with a network small enough to ship, on training
problems alone. The right answers stand for the large model's, which writes them with two exceptions
in a thousand: so nothing is generated, and some minutes of one core are enough. Single-threaded; a
run that was interrupted goes on when started again with the same folder.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Annotated

import torch
import typer

from tokenrouter.calibration.prompts import question
from tokenrouter.cli_progress import progress_bars
from tokenrouter.demo.evaluate import MAX_ANSWER_TOKENS
from tokenrouter.demo.recipes import MODELS_FOLDER, ModelName
from tokenrouter.demo.splits import for_training
from tokenrouter.demo.tokenizer import END_ID
from tokenrouter.router_training import report
from tokenrouter.router_training.fitting import Recipe
from tokenrouter.router_training.run import Wanted, train

ROUTER = MODELS_FOLDER / "router.safetensors"
PROBLEMS = 6000
SHARE = 0.05
"""Of tokens that the large model writes at the router's own threshold."""
RECIPE = Recipe(
    width=64, blocks=2, expansion=2, learning_rate=2e-3, epochs=10, patience=10, decay=True
)


def main(
    work: Annotated[Path, typer.Option(help="Folder for what is collected on the way.")],
    out: Annotated[Path, typer.Option(help="The router's file.")] = ROUTER,
    count: Annotated[int, typer.Option("--problems", min=10)] = PROBLEMS,
) -> None:
    """Train the router of the demo pair, and report on it."""
    torch.set_num_threads(1)
    drawn = for_training(count)
    wanted = Wanted(
        small=MODELS_FOLDER / ModelName.SMALL,
        large=MODELS_FOLDER / ModelName.LARGE,
        prompts=[question(problem.question) for problem in drawn],
        out=work,
        max_tokens=MAX_ANSWER_TOKENS,
        answers=[[*problem.answer.encode(), END_ID] for problem in drawn],
        batch_size=500,
        share=SHARE,
        recipe=RECIPE,
        small_name=f"demo:{ModelName.SMALL}",
    )
    with progress_bars(shown=True) as bars:
        found = train(wanted, bars)
    shutil.copyfile(work / "router.safetensors", out)
    report.show(found)


if __name__ == "__main__":
    typer.run(main)
