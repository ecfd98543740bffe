"""Has the libraries under SGLang speak through `logging` instead of writing to stderr.

Called by `preload.py`, before anything is loaded with them.
"""

from __future__ import annotations

import functools
import importlib
import logging
from collections.abc import Callable
from typing import Any

logger = logging.getLogger(__name__)


def redirect_library_output() -> None:
    """Progress bars become log lines at debug; transformers' own handler is removed.

    May be called again.
    """
    transformers = logging.getLogger("transformers")
    transformers.handlers.clear()
    transformers.propagate = True
    bar = importlib.import_module("tqdm.std").tqdm
    if not getattr(bar.__init__, "is_ours", False):
        bar.__init__ = _logged(bar.__init__)


def _logged(construct: Callable[..., None]) -> Callable[..., None]:
    """The constructor of progress bars, which then write log lines, or nothing."""

    @functools.wraps(construct)
    def init(bar: Any, *arguments: Any, **options: Any) -> None:
        options |= {"file": _Lines(), "ascii": True}
        if not logger.isEnabledFor(logging.DEBUG):
            options["disable"] = True
        construct(bar, *arguments, **options)

    init.is_ours = True  # type: ignore[attr-defined]
    return init


class _Lines:
    """A text file whose lines, which bars end with either kind of newline, are logged."""

    def write(self, text: str) -> int:
        """Log the lines that are not blank."""
        for line in text.replace("\r", "\n").split("\n"):
            if line.strip():
                logger.debug("%s", line.strip())
        return len(text)

    def flush(self) -> None:
        """Nothing waits."""
