"""Cells of a benchmark in order of their worth, as many as fit a time, and what they found."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from validation import Verdict


@dataclass(frozen=True)
class Cell:
    """One setting of a part of a benchmark; ``seconds`` it should take."""

    part: str
    what: str
    seconds: float
    run: Callable[[], list[Verdict]]


@dataclass(frozen=True)
class Outcome:
    """``verdicts`` of a cell after so many ``seconds``; None: there was no time for it."""

    cell: Cell
    verdicts: Sequence[Verdict] | None
    seconds: float = 0.0

    @property
    def passed(self) -> bool:
        """Whether it ran, and every claim held."""
        return self.verdicts is not None and all(each.passed for each in self.verdicts)


def in_turns(parts: Iterable[Sequence[Cell]]) -> list[Cell]:
    """The first cell of every part, then the second of every part, and so on."""
    return [cell for turn in zip_longest(*parts) for cell in turn if cell is not None]


def run(
    cells: Sequence[Cell], limit_s: float, clock: Callable[[], float] = time.monotonic
) -> Iterator[Outcome]:
    """Run what fits, in order, and tell how long it will take.

    What cells are expected to take is corrected by what the earlier ones took.
    """
    began = clock()
    expected = took = 0.0
    for index, cell in enumerate(cells):
        factor = took / expected if expected else 1.0
        started = clock()
        left = limit_s - (started - began)
        if factor * cell.seconds > left:
            print(f"{cell.part} {cell.what}: no time", flush=True)
            yield Outcome(cell, None)
            continue
        ahead = min(factor * sum(each.seconds for each in cells[index:]), left)
        takes = f"about {factor * cell.seconds / 60:.1f} min of {ahead / 60:.0f} to go"
        print(f"{cell.part} {cell.what}: {takes}", flush=True)
        verdicts = cell.run()
        outcome = Outcome(cell, verdicts, clock() - started)
        expected, took = expected + cell.seconds, took + outcome.seconds
        print(*(f"  {each}" for each in verdicts), sep="\n", flush=True)
        yield outcome


def summary(outcomes: Sequence[Outcome]) -> str:
    """A table for docs/measured.md, part by part."""
    lines = ["| part | setting | what was found | claim |", "|---|---|---|---|"]
    for outcome in sorted(outcomes, key=lambda each: each.cell.part):
        cell = outcome.cell
        if outcome.verdicts is None:
            lines.append(f"| {cell.part} | {cell.what} | not measured: no time | |")
        for verdict in outcome.verdicts or ():
            holds = "holds" if verdict.passed else "FAILS"
            lines.append(f"| {cell.part} | {cell.what} | {verdict.what} | {holds} |")
    return "\n".join(lines)


def record(outcomes: Sequence[Outcome]) -> list[dict[str, Any]]:
    """Everything, for a file; ``verdicts`` of a cell without time are null."""
    return [
        {
            "part": each.cell.part,
            "setting": each.cell.what,
            "seconds": each.seconds,
            "verdicts": None
            if each.verdicts is None
            else [{"what": one.what, "passed": one.passed} for one in each.verdicts],
        }
        for each in outcomes
    ]
