"""Measure the demo pair: `python -m tokenrouter.demo.evaluate`.

Greedy generation on held-out problems. An answer counts as a right result if it ends in the right
number, and as wholly right if every token of the worked answer is the expected one.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Annotated

import torch
import typer
from rich.console import Console
from rich.table import Table
from transformers import AutoModelForCausalLM, AutoTokenizer

from tokenrouter.demo.recipes import MODELS_FOLDER, ModelName
from tokenrouter.demo.task import Problem, problems

MAX_ANSWER_TOKENS = 256
RESULT = re.compile(r" has (\d+) \w+\.$")


@dataclass(frozen=True)
class Score:
    """Shares of right answers in 0..1, the mean answer length in tokens, and the time taken."""

    model: str
    problems: int
    result_right: float
    wholly_right: float
    answer_tokens: float
    seconds: float


def answers(folder: Path, asked: Sequence[Problem], batch_size: int) -> Iterator[tuple[str, int]]:
    """Each problem's greedy answer and its number of tokens, in order."""
    tokenizer = AutoTokenizer.from_pretrained(folder, padding_side="left")
    model = AutoModelForCausalLM.from_pretrained(folder)
    for start in range(0, len(asked), batch_size):
        chats = [
            [{"role": "user", "content": problem.question}]
            for problem in asked[start : start + batch_size]
        ]
        prompts = tokenizer.apply_chat_template(
            chats, add_generation_prompt=True, padding=True, return_dict=True, return_tensors="pt"
        )
        output = model.generate(**prompts, do_sample=False, max_new_tokens=MAX_ANSWER_TOKENS)
        for row in output[:, prompts["input_ids"].shape[1] :]:
            tokens = int((row != tokenizer.pad_token_id).sum())
            yield tokenizer.decode(row, skip_special_tokens=True), tokens


def result_of(answer: str) -> int | None:
    """The number an answer ends in, or None where it does not end as an answer should."""
    found = RESULT.search(answer)
    return int(found[1]) if found else None


def score(folder: Path, count: int, batch_size: int = 125) -> Score:
    """Measure one model on the first `count` held-out problems."""
    started = time.monotonic()
    asked = list(islice(problems("held_out", "evaluate"), count))
    given = list(answers(folder, asked, batch_size))
    pairs = [(problem, text) for problem, (text, _) in zip(asked, given, strict=True)]
    return Score(
        model=folder.name,
        problems=count,
        result_right=sum(result_of(text) == problem.result for problem, text in pairs) / count,
        wholly_right=sum(text == problem.answer for problem, text in pairs) / count,
        answer_tokens=sum(tokens for _, tokens in given) / count,
        seconds=time.monotonic() - started,
    )


def table(scores: Sequence[Score]) -> Table:
    """The scores as a table, a row for each model."""
    rows = Table("model", "problems", "result right", "wholly right", "tokens/answer", "seconds")
    for one in scores:
        rows.add_row(
            one.model,
            str(one.problems),
            f"{one.result_right:.3f}",
            f"{one.wholly_right:.3f}",
            f"{one.answer_tokens:.1f}",
            f"{one.seconds:.0f}",
        )
    return rows


def main(
    model_path: Annotated[
        Path | None, typer.Option(help="A model folder; both models of the pair if left out.")
    ] = None,
    count: Annotated[int, typer.Option("--problems", min=1, help="Held-out problems.")] = 1000,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, not a table.")] = False,
) -> None:
    """Measure how often the models answer held-out problems right."""
    torch.set_num_threads(1)
    folders = [model_path] if model_path else [MODELS_FOLDER / name for name in ModelName]
    scores = [score(folder, count) for folder in folders]
    if as_json:
        typer.echo(json.dumps([asdict(one) for one in scores], indent=2))
    else:
        Console().print(table(scores))


if __name__ == "__main__":
    typer.run(main)
