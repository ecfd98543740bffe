"""Machine code for the inner loops of the throughput model, kept between processes.

Numba writes what it compiled beside the module; where that is read-only (an installed package)
under ``NUMBA_CACHE_DIR`` or the user's cache folder; and where nothing can be written, or what
was kept cannot be read, each process compiles for itself.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar, cast

from numba import njit
from numba.core.caching import FunctionCache

P = ParamSpec("P")
R = TypeVar("R")

logger = logging.getLogger(__name__)


def compiled(function: Callable[P, R]) -> Callable[P, R]:
    """The function as machine code, made when it is first called; it releases the GIL."""
    dispatcher = njit(nogil=True)(function)
    try:
        dispatcher._cache = Cache(function)  # as cache=True does, which knows no other class
    except (RuntimeError, OSError) as error:  # no folder for the cache can be written
        logger.debug("%s is compiled by each process: %s", function.__qualname__, error)
    return cast(Callable[P, R], dispatcher)


class Cache(FunctionCache):  # type: ignore[misc]  # numba has no types
    """Numba's files of machine code, where broken ones and a full disk cost time only."""

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """The machine code for arguments of these types; None if there is none to be had."""
        try:
            return super().load_overload(sig, target_context)
        except Exception as error:  # noqa: BLE001 - half a pickle raises nearly anything
            self._give_up("read", error)
        try:
            self.flush()
        except OSError as error:
            self._give_up("emptied", error)
        return None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep the machine code, if that is possible."""
        try:
            super().save_overload(sig, data)
        except Exception as error:  # noqa: BLE001 - it first reads what is there
            self._give_up("written", error)

    def _give_up(self, what: str, error: Exception) -> None:
        text = "machine code kept in %s cannot be %s: %s: %s"
        logger.warning(text, self.cache_path, what, type(error).__name__, error)
