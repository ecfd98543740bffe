"""Progress of commands that take a while: bars, or lines where nobody looks at a terminal."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

LINE_EVERY_S = 10.0
"""Time between two lines of one stage."""


@contextmanager
def progress_bars(shown: bool, lines: bool = False) -> Iterator[Progress]:
    """Bars on stderr, if ``shown`` and somebody looks; they go when the work is done.

    ``lines``: if ``shown`` and stderr is no terminal, a line when a stage begins and now and then.
    What is printed on their console comes out unless they are not to be ``shown``.
    """
    console = Console(stderr=True, quiet=not shown)
    columns = (BarColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    hidden = not (shown and console.is_terminal)
    kind = _Lines if lines and shown and hidden else Progress
    # What refreshes itself counts in a thread that ends at once where no bar is shown.
    bars = kind(*columns, console=console, transient=True, disable=hidden, auto_refresh=not hidden)
    with bars:
        yield bars


class _Lines(Progress):
    """Says in lines how far each task is."""

    def __init__(self, *columns: Any, **options: Any) -> None:
        super().__init__(*columns, **options)
        self._said = 0.0

    def add_task(self, *args: Any, **options: Any) -> TaskID:
        """As rich's; says so at once."""
        task = super().add_task(*args, **options)
        self._say(task)
        return task

    def advance(self, task_id: TaskID, advance: float = 1) -> None:
        """As rich's; says so if nothing was said for a while."""
        super().advance(task_id, advance)
        self._say_sometimes(task_id)

    def update(self, task_id: TaskID, **options: Any) -> None:
        """As rich's; says so if nothing was said for a while."""
        super().update(task_id, **options)
        self._say_sometimes(task_id)

    def _say_sometimes(self, task_id: TaskID) -> None:
        if time.monotonic() - self._said >= LINE_EVERY_S:
            self._say(task_id)

    def _say(self, task_id: TaskID) -> None:
        self._said = time.monotonic()
        task = self._tasks[task_id]
        how_far = "" if task.total is None else f" ({task.completed:g} of {task.total:g})"
        self.console.print(task.description + how_far, highlight=False, soft_wrap=True)
