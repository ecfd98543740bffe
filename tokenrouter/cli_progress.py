"""Progress bars of commands that take a while."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress


@contextmanager
def progress_bars(shown: bool) -> Iterator[Progress]:
    """Bars on stderr, if ``shown`` and somebody looks; they go when the work is done.

    What is printed on their console comes out unless they are not to be ``shown``.
    """
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True, quiet=not shown)
    columns = (BarColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    hidden = not (shown and console.is_terminal)
    with Progress(*columns, console=console, transient=True, disable=hidden) as bars:
        yield bars
